//! Random programs of file operations and links, against the system's own view of the same tree.
