//! Shared inputs for the benches: nothing ships from here.
//!
//! [`heads`] are estates of any size as they are served, [`synthetic`] ones as they are authored,
//! [`messages`] what collectors send to a gateway, [`counting`] an allocator that counts,
//! [`evidence`] collectors under a Rollout.

pub mod counting;
pub mod evidence;
pub mod heads;
pub mod messages;
pub mod synthetic;
