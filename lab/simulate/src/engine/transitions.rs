//! State transitions of workers, batches and the model.

use std::cmp::Reverse;

use super::{ModelState, Simulator, WorkerState};
use crate::options::Order;
use crate::run::{Batch, EventKind};

impl Simulator<'_> {
    /// Creates the loader's next batch, or returns `None` after the last one.
    fn new_batch(&mut self, worker: u32) -> Option<u32> {
        let batch = self.batches.len() as u32;
        if u64::from(batch) >= self.limit {
            return None;
        }
        let load_ns = self.loads.next_ns();
        self.batches.push(Batch { worker, load_ns, ..Batch::default() });
        Some(batch)
    }

    /// Assigns the next batch to the next worker in round-robin order; under [`Order::Completed`] it skips workers that
    /// have prefetch outstanding batches.
    pub(super) fn assign(&mut self) {
        let workers = self.workers.len();
        if self.options.order == Order::Completed {
            let mut tried = 0;
            while self.workers[self.turn].outstanding >= self.options.prefetch && tried < workers {
                self.turn = (self.turn + 1) % workers;
                tried += 1;
            }
        }
        let turn = self.turn;
        if let Some(batch) = self.new_batch(turn as u32) {
            self.turn = (turn + 1) % workers;
            let worker = &mut self.workers[turn];
            worker.tasks.push_back(batch);
            worker.outstanding += 1;
            if worker.state == WorkerState::Idle {
                self.idle.push(turn as u32);
            }
        }
    }

    pub(super) fn start_load(&mut self, number: u32) {
        let at = number as usize;
        if self.workers[at].state != WorkerState::Idle {
            return;
        }
        let batch = match self.options.order {
            Order::Pool => self.new_batch(number),
            Order::Pytorch | Order::Completed => self.workers[at].tasks.pop_front(),
        };
        let Some(batch) = batch else { return };
        self.workers[at].state = WorkerState::Loading;
        self.workers[at].batch = batch;
        let record = &mut self.batches[batch as usize];
        record.start_ns = Some(self.now);
        self.loading.push(Reverse((self.work + record.load_ns, number)));
        self.log(EventKind::Start, batch, number);
    }

    pub(super) fn load_ended(&mut self, number: u32) {
        let worker = &mut self.workers[number as usize];
        worker.state = WorkerState::Idle;
        let batch = worker.batch;
        self.batches[batch as usize].done_ns = Some(self.now);
        self.log(EventKind::Done, batch, number);
        match self.options.order {
            Order::Pytorch => {
                while self.batches.get(self.next_in_order).is_some_and(|b| b.done_ns.is_some()) {
                    self.enqueue(self.next_in_order as u32);
                    self.next_in_order += 1;
                }
            }
            Order::Completed => self.enqueue(batch),
            Order::Pool if self.queue.len() < self.options.queue_capacity() as usize => self.enqueue(batch),
            Order::Pool => {
                self.workers[number as usize].state = WorkerState::Blocked;
                self.blocked.push_back(number);
                return;
            }
        }
        self.idle.push(number);
    }

    fn enqueue(&mut self, batch: u32) {
        let record = &mut self.batches[batch as usize];
        record.queued_ns = Some(self.now);
        let worker = record.worker;
        self.queue.push_back(batch);
        self.log(EventKind::Queue, batch, worker);
    }

    pub(super) fn advance_model(&mut self) {
        match self.model {
            ModelState::Transferring { batch, until } if until == self.now => self.compute(batch),
            ModelState::Computing { batch, until } if until == self.now => self.step_ended(batch),
            ModelState::Sharing { batch, target } if target <= self.work => self.step_ended(batch),
            _ => {}
        }
    }

    fn step_ended(&mut self, batch: u32) {
        self.batches[batch as usize].end_ns = Some(self.now);
        self.finished += 1;
        self.model = ModelState::Free;
        self.log(EventKind::End, batch, self.batches[batch as usize].worker);
    }

    fn compute(&mut self, batch: u32) {
        let step_ns = self.options.step.draw(&mut self.steps);
        self.model = if self.options.step_core {
            ModelState::Sharing { batch, target: self.work + step_ns }
        } else {
            ModelState::Computing { batch, until: self.tick(self.now + step_ns) }
        };
        let record = &mut self.batches[batch as usize];
        record.step_ns = Some(self.now);
        let worker = record.worker;
        self.log(EventKind::Step, batch, worker);
    }

    pub(super) fn take(&mut self) {
        let Some(batch) = self.queue.pop_front() else { return };
        let record = &mut self.batches[batch as usize];
        record.taken_ns = Some(self.now);
        let worker = record.worker;
        self.log(EventKind::Take, batch, worker);
        if self.options.transfer_ns == 0 {
            self.compute(batch);
        } else {
            let until = self.tick(self.now + self.options.transfer_ns);
            self.model = ModelState::Transferring { batch, until };
        }
        if self.options.order == Order::Pool {
            if let Some(number) = self.blocked.pop_front() {
                let worker = &mut self.workers[number as usize];
                worker.state = WorkerState::Idle;
                let held = worker.batch;
                self.enqueue(held);
                self.idle.push(number);
            }
        } else {
            self.workers[worker as usize].outstanding -= 1;
            self.assign();
        }
    }
}
