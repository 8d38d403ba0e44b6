//! The journal alone: what it holds after each kind of end.
