//! The reasons that a claim can give, and their documentation.

/// A reason of a condition or an event, and what it means. The command `reasons` of an operator prints all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reason {
    /// For machines: CamelCase, letters and digits.
    pub name: &'static str,
    /// What it is about.
    pub topic: Topic,
    /// The cause, as Markdown without links, in lower case.
    pub meaning: &'static str,
    /// What to do about it, as Markdown without links; empty if there is nothing to do.
    pub remedy: &'static str,
    /// How to find out more, as Markdown; empty if the message is enough. Only the page of reasons has it.
    pub check: &'static str,
}

impl Reason {
    /// A reason without documentation.
    pub const fn new(name: &'static str, topic: Topic) -> Self {
        Self { name, topic, meaning: "", remedy: "", check: "" }
    }

    /// With the cause, as Markdown.
    #[must_use]
    pub const fn meaning(self, meaning: &'static str) -> Self {
        Self { meaning, ..self }
    }

    /// With what to do about it, as Markdown.
    #[must_use]
    pub const fn remedy(self, remedy: &'static str) -> Self {
        Self { remedy, ..self }
    }

    /// With how to find out more, as Markdown.
    #[must_use]
    pub const fn check(self, check: &'static str) -> Self {
        Self { check, ..self }
    }
}

/// What a reason is about: the tables that `reasons` prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Topic {
    /// How far the claim is.
    Progress,
    /// What the claim asks for, and conflicts in the cluster.
    Claim,
    /// The class and its Secret.
    Class,
    /// The store.
    Store,
    /// The operator.
    Operator,
    /// An event without a condition.
    Event,
    /// An event of type Warning without a condition.
    Warning,
    /// The condition `Orphaned` of an ObjectBucket.
    Orphaned,
}

/// Declares reasons, each with its cause, its remedy and, if that helps, how to find out more: a constant with each one's
/// name, and a `TABLE` of all, for [`REASONS`](crate::Provisioner::REASONS).
///
/// ```
/// bucket_provisioner::reasons! {
///     Store {
///         SHELF_FULL = "ShelfFull": "there is no room for another bucket", "add a shelf", "`df` shows the room of each shelf";
///     }
/// }
/// assert_eq!(TABLE[0].name, SHELF_FULL);
/// ```
#[macro_export]
macro_rules! reasons {
    ($($topic:ident { $($constant:ident = $name:literal: $meaning:literal, $remedy:literal $(, $check:literal)?;)* })*) => {
        $($(
            #[doc = $meaning]
            pub(crate) const $constant: &str = $name;
        )*)*

        /// All of them, in the order of the document.
        pub(crate) const TABLE: &[&$crate::store::Reason] = &[$($(
            &$crate::store::Reason::new($name, $crate::store::Topic::$topic).meaning($meaning).remedy($remedy)$(.check($check))?,
        )*)*];
    };
}
