//! What all reconciles share, and what is remembered between them.

pub(crate) mod conditions;
pub(crate) mod pages;
pub(crate) mod records;
pub(crate) mod row;
pub(crate) mod workers;
