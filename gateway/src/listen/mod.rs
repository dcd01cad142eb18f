//! listen
mod bind;
pub mod head;
pub mod socket;
pub use bind::bind;
