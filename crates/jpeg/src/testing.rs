//! Inputs of tests.

/// Returns the samples of a picture with waves and noise.
pub(crate) fn picture(width: usize, height: usize, channels: usize, seed: u64) -> Vec<u8> {
    let mut random = TestRandom(seed);
    let wave = |x: usize, y: usize, c: usize| {
        ((x * (c + 1)) as f64 / 7.0).sin() * 60.0 + ((y * 2 + c) as f64 / 11.0).cos() * 50.0 + 120.0
    };
    let pixels =
        (0..width * height * channels).map(|n| (n / channels % width, n / channels / width, n % channels));
    pixels.map(|(x, y, c)| (wave(x, y, c) + random.below(24) as f64).clamp(0.0, 255.0) as u8).collect()
}

/// A linear congruential generator.
pub(crate) struct TestRandom(pub(crate) u64);

impl TestRandom {
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}
