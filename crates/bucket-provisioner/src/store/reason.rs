//! The reasons that a claim can give, and their documentation.

/// A reason: the word on the claim, and what it means. The command `reasons` of an operator prints them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reason {
    /// The word, for machines: CamelCase, letters and digits.
    pub name: &'static str,
    /// What it is about.
    pub topic: Topic,
    /// What happened, as Markdown.
    pub meaning: &'static str,
    /// What to do about it, as Markdown; empty if there is nothing to do.
    pub remedy: &'static str,
}

impl Reason {
    /// A reason without documentation.
    pub const fn new(name: &'static str, topic: Topic) -> Self {
        Self { name, topic, meaning: "", remedy: "" }
    }

    /// With what happened, as Markdown.
    #[must_use]
    pub const fn meaning(self, meaning: &'static str) -> Self {
        Self { meaning, ..self }
    }

    /// With what to do about it, as Markdown.
    #[must_use]
    pub const fn remedy(self, remedy: &'static str) -> Self {
        Self { remedy, ..self }
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

/// Declares reasons: a constant with each one's name, and a `TABLE` of all, for
/// [`REASONS`](crate::Provisioner::REASONS).
///
/// ```
/// bucket_provisioner::reasons! {
///     Store {
///         SHELF_FULL = "ShelfFull": "there is no room for another bucket", "add a shelf";
///     }
/// }
/// assert_eq!(TABLE[0].name, SHELF_FULL);
/// ```
#[macro_export]
macro_rules! reasons {
    ($($topic:ident { $($constant:ident = $name:literal: $meaning:literal, $remedy:literal;)* })*) => {
        $($(
            #[doc = $meaning]
            pub(crate) const $constant: &str = $name;
        )*)*

        /// All of them, in the order of the document.
        pub(crate) const TABLE: &[&$crate::store::Reason] = &[$($(
            &$crate::store::Reason::new($name, $crate::store::Topic::$topic).meaning($meaning).remedy($remedy),
        )*)*];
    };
}
