//! Names that stores, crash points and wires spell in the same way.

macro_rules! spelled {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name { $($(#[$variant_doc])* $variant),+ }

        impl $name {
            /// All variants.
            pub const ALL: &'static [$name] = &[$($name::$variant),+];

            /// The name, as stores and the wire spell it.
            pub fn as_str(self) -> &'static str {
                match self { $($name::$variant => $text),+ }
            }

            /// The variant that `as_str` spells this way.
            pub fn parse(text: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|value| value.as_str() == text)
            }
        }
    };
}
pub(crate) use spelled;
pub use windlass_kernel::CallStatus;

spelled! {
    /// The kind of a commit. Each kind has a crash point before and after it.
    CommitKind {
        /// A run is queued behind others.
        Enqueue = "enqueue",
        /// A leased run is entered.
        Enter = "enter",
        /// Deltas are stored before readers see them.
        Announce = "announce",
        /// The model did not continue the streamed text.
        Cut = "cut",
        /// The content of a run is erased.
        Erase = "erase",
        /// A reader gets a heartbeat.
        Quiet = "quiet",
        /// The model replied with calls.
        Suspend = "suspend",
        /// Some results arrived.
        Report = "report",
        /// The child run of a call is on record.
        BeginChild = "begin_child",
        /// All results are in, and the next iteration begins.
        Resume = "resume",
        /// An attempt of the model call failed.
        Retry = "retry",
        /// The run ended.
        End = "end",
        /// The run was stopped.
        Stop = "stop",
        /// The deadline of a call passed.
        Timeout = "timeout",
        /// The run of a lost owner is taken over.
        TakeOver = "take_over",
        /// A run or a call is parked.
        Park = "park",
        /// A person decided.
        Answer = "answer",
        /// An agent whose run can't be read is quarantined.
        Quarantine = "quarantine",
        /// A person gave such a run up.
        Abandon = "abandon",
        /// Something else is recorded: an ignored input, or the end of a claim.
        Note = "note",
        /// A message that belongs to no run is refused.
        Refuse = "refuse",
        /// A box is packed.
        Pack = "pack",
        /// A conversation is created, changed or deleted.
        Converse = "converse",
        /// A tool service claimed calls.
        Claim = "claim",
        /// A tool service prolonged its leases.
        Renew = "renew",
        /// A tool service gave calls back.
        Release = "release",
    }
}

spelled! {
    /// The kind of an inbox message.
    MessageKind {
        /// A request for a run.
        Turn = "turn",
        /// The result of a call.
        ToolResult = "tool_result",
        /// A deadline that passed.
        Timeout = "timeout",
        /// A request to end a run.
        Stop = "stop",
        /// A person's decision.
        Answer = "answer",
        /// A person's action.
        UiAction = "ui_action",
        /// An instruction for the active run.
        Steer = "steer",
    }
}

spelled! {
    /// The status of an inbox message.
    MessageStatus {
        /// The request of a run that is queued.
        Queued = "queued",
        /// The message waits for the owner.
        Pending = "pending",
        /// The owner took the message.
        Consumed = "consumed",
        /// The message broke the protocol.
        Error = "error",
        /// The message is not needed any more.
        Skipped = "skipped",
    }
}
