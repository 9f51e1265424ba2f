//! What the server answers, as a client sees it.
