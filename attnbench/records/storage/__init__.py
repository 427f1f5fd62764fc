"""The journal of a sweep: written, read, resumed, merged; and temporary folders."""
