//! Which processes exist, read from `/proc`: descendants, and those that carry a marker.
