//! Shared inputs for the benches: nothing ships from here.
//!
//! [`heads`] are estates of any size, [`messages`] what collectors send to a gateway.

pub mod heads;
pub mod messages;
