//! Shapes of text that several tools share.
