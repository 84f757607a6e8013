//! Words that stores, crash points and wires spell the same.

macro_rules! spelled {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name { $($(#[$variant_doc])* $variant),+ }

        impl $name {
            /// All of them.
            pub const ALL: &'static [$name] = &[$($name::$variant),+];

            /// As it is spelled in stores and on the wire.
            pub fn as_str(self) -> &'static str {
                match self { $($name::$variant => $text),+ }
            }

            /// Reads what `as_str` wrote.
            pub fn parse(text: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|value| value.as_str() == text)
            }
        }
    };
}
pub(crate) use spelled;

spelled! {
    /// What a commit does. Each has a crash point before and after it.
    CommitKind {
        /// A run is recorded behind others.
        Enqueue = "enqueue",
        /// A leased run is entered.
        Enter = "enter",
        /// Words are kept that are about to be announced.
        Announce = "announce",
        /// Announced words are not gone on with.
        Cut = "cut",
        /// What a run said is erased.
        Erase = "erase",
        /// Nothing happened for a while.
        Quiet = "quiet",
        /// The model's reply asks for calls.
        Suspend = "suspend",
        /// Some results are in.
        Report = "report",
        /// All results are in and the next lap begins.
        Resume = "resume",
        /// A try of the model call failed.
        Retry = "retry",
        /// The run is over.
        End = "end",
        /// Somebody stopped it.
        Stop = "stop",
        /// A deadline passed.
        Timeout = "timeout",
        /// A lost owner's run goes on.
        TakeOver = "take_over",
        /// A person has to decide.
        Park = "park",
        /// A person decided.
        Answer = "answer",
        /// A turn that cannot be read is taken out of the way.
        Quarantine = "quarantine",
        /// A person gave such a turn up.
        Abandon = "abandon",
        /// Something else is put on record: an ignored input, an ended claim.
        Note = "note",
        /// A message that is no run's is refused.
        Refuse = "refuse",
        /// A box is packed.
        Pack = "pack",
        /// A conversation is begun, changed or ended.
        Converse = "converse",
        /// A service took calls.
        Claim = "claim",
        /// A service prolonged its hold.
        Renew = "renew",
        /// A service gave calls back.
        Release = "release",
    }
}

spelled! {
    /// What an inbox message is.
    MessageKind {
        /// A request for a run.
        Turn = "turn",
        /// A result.
        ToolResult = "tool_result",
        /// A deadline that passed.
        Timeout = "timeout",
        /// A wish to end a run.
        Stop = "stop",
        /// A person's decision.
        Answer = "answer",
        /// A person's action.
        UiAction = "ui_action",
    }
}

spelled! {
    /// How far an inbox message is.
    MessageStatus {
        /// A run that waits its turn.
        Queued = "queued",
        /// To be taken by the owner.
        Pending = "pending",
        /// Taken.
        Consumed = "consumed",
        /// Against the protocol.
        Error = "error",
        /// No longer wanted.
        Skipped = "skipped",
    }
}

spelled! {
    /// How far a call is.
    CallStatus {
        /// Handed to an executor of this process.
        Started = "started",
        /// Waits for a service to claim it.
        Waiting = "waiting",
        /// A service holds it.
        Claimed = "claimed",
        /// The result is here.
        Received = "received",
        /// The result went into the output box.
        Applied = "applied",
        /// The deadline passed first.
        Expired = "expired",
        /// A person has to decide.
        Parked = "parked",
        /// The run ended without it.
        Dropped = "dropped",
    }
}
