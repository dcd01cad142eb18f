//! Shared inputs for the benches: nothing ships from here.
