//! The locks of code whose threads are also tested in many orders: parking_lot's, which a panicking
//! thread does not poison. In a test that tries orders they are those of the tool that does it.

#[cfg(not(test))]
pub(crate) use parking_lot::{Condvar, Mutex};

#[cfg(test)]
pub(crate) mod ordered;

#[cfg(test)]
pub(crate) use ordered::{Condvar, Mutex};
