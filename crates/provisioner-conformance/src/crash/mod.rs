//! The operator is killed in every world that its calls can leave behind, and started again.
//!
//! The calls of a flow are found by a run in which nothing happens, so that a call that is new in the source is covered
//! without anybody adding it here. Then for each of them that changes something: the operator is killed with SIGKILL when
//! the server has done what was asked and has not answered yet, and for the first also when the call is about to reach the
//! server (`point` has the reason why not for all). After a restart the claim has to reach the state that it would have reached, and in the end
//! nothing exists twice, nothing is left behind, and nothing foreign is changed.
//!
//! | file | what it holds |
//! |---|---|
//! | `flow` | a kind of claim, and what happens to it |
//! | `later` | ObjectBuckets and buckets that outlive their claims |
//! | `matrix` | finds the crash points of a flow and runs them all |
//! | `point` | one moment of one call |
//! | `scene` | the environment of a flow |
//! | `outcome` | what must be true after it |

mod flow;
mod later;
mod matrix;
mod outcome;
mod point;
mod scene;

pub use self::flow::{Corruption, Edit, Flow, Kind, Step};
pub use self::matrix::{Pace, crash_everywhere};
pub(crate) use self::point::step;
