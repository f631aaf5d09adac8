//! The operator is killed in every world that its calls can leave behind, and started again.
//!
//! The calls of a flow are found by a run in which nothing happens, so that a call that is new in the source is covered
//! without anybody adding it here. Then for each of them that changes something: the operator is killed with SIGKILL when
//! the server has done what was asked and has not answered yet, and for the first also when the call is about to reach the
//! server (`point` says why not for all). After a restart the claim has to come to where it would have come, and in the end
//! nothing is doubled, left behind, or touched that is somebody else's.
//!
//! | file | what it holds |
//! |---|---|
//! | `flow` | a kind of claim, and what happens to it |
//! | `later` | records and buckets that outlive their claims |
//! | `matrix` | finds the crash points of a flow and runs them all |
//! | `point` | one moment of one call |
//! | `scene` | what a flow plays in, and what must be true of it |

mod flow;
mod later;
mod matrix;
mod point;
mod scene;

pub use self::flow::{Act, Flow, Kind, Spoil};
pub use self::matrix::{Pace, crash_everywhere};
pub(crate) use self::point::step;
