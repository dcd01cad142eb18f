//! What `render` does with whole estates.

mod load_demo;
