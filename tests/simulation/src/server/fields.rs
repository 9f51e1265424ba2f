//! managedFields and server-side apply.
