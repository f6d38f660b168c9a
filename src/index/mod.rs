//! Sidecars that find records: the record index, the length index and the shard table.
