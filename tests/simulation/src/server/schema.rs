//! Schemas of CRDs: defaults, pruning, validation.
