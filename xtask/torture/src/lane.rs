//! The two ways a run's messages go: in any order, and in the order of their message group.

/// A topic and the group that consumes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    Any,
    InOrder,
}

impl Lane {
    pub(crate) const ALL: [Self; 2] = [Self::Any, Self::InOrder];

    pub(crate) fn topic(self) -> &'static str {
        match self {
            Self::Any => "torture",
            Self::InOrder => "torture-in-order",
        }
    }

    pub(crate) fn group(self) -> &'static str {
        match self {
            Self::Any => "torturers",
            Self::InOrder => "torturers-in-order",
        }
    }

    /// What a broker's configuration file says: what isn't made on demand, and that
    /// deliveries which a life of a second or two outlasts have a record of their own.
    pub(crate) fn configuration() -> String {
        let group = Self::InOrder.group();
        format!("lease-stay = \"1s\"\n\n[[groups]]\nname = \"{group}\"\nfifo = true\n")
    }

    /// One delivery in so many is left to come back. In order this stops a whole message
    /// group until then, so that it happens seldom enough for the others to get on.
    pub(crate) fn left_one_in(self) -> u64 {
        match self {
            Self::Any => 20,
            Self::InOrder => 200,
        }
    }
}
