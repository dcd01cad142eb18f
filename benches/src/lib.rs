//! Shared inputs for the benches: nothing ships from here.
//!
//! [`heads`] are estates of any size as they are served, [`synthetic`] ones as they are authored,
//! [`messages`] what collectors send to a gateway, [`counting`] an allocator that counts.

pub mod counting;
pub mod heads;
pub mod messages;
pub mod synthetic;
