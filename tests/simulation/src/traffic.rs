//! How much a process sends to the API server, and how much it gets.

use std::fmt;

/// What went over a connection. The event of a watch is an answer too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Requests.
    pub calls: usize,
    /// Bytes of all bodies sent.
    pub sent: usize,
    /// Bytes of all answers.
    pub received: usize,
    /// Bytes of the largest body sent.
    pub largest_sent: usize,
    /// Bytes of the largest answer.
    pub largest_received: usize,
}

impl Traffic {
    /// Counts a request with a body of so many bytes.
    pub fn sends(&mut self, bytes: usize) {
        self.calls += 1;
        self.sent += bytes;
        self.largest_sent = self.largest_sent.max(bytes);
    }

    /// Counts an answer of so many bytes.
    pub fn gets(&mut self, bytes: usize) {
        self.received += bytes;
        self.largest_received = self.largest_received.max(bytes);
    }

    /// Of each number the larger one.
    #[must_use]
    pub fn most(self, other: Self) -> Self {
        Self {
            calls: self.calls.max(other.calls),
            sent: self.sent.max(other.sent),
            received: self.received.max(other.received),
            largest_sent: self.largest_sent.max(other.largest_sent),
            largest_received: self.largest_received.max(other.largest_received),
        }
    }
}

impl fmt::Display for Traffic {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{} calls with {} sent (largest {}) and {} received (largest {})",
            self.calls,
            size(self.sent),
            size(self.largest_sent),
            size(self.received),
            size(self.largest_received),
        )
    }
}

/// So many bytes, for people.
fn size(bytes: usize) -> String {
    format!("{}.{} KiB", bytes / 1024, bytes % 1024 * 10 / 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_and_the_largest_are_counted_and_of_two_processes_the_larger_numbers() {
        let (mut one, mut other) = (Traffic::default(), Traffic::default());
        for bytes in [100, 3000, 0] {
            one.sends(bytes);
        }
        for bytes in [2048, 10] {
            one.gets(bytes);
        }
        other.sends(5000);
        assert_eq!(
            one.to_string(),
            "3 calls with 3.0 KiB sent (largest 2.9 KiB) and 2.0 KiB received (largest 2.0 KiB)"
        );
        let most = one.most(other);
        assert_eq!((most.calls, most.sent, most.largest_sent, most.received), (3, 5000, 5000, 2058));
    }
}
