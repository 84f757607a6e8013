//! Interrupts: everything that waits for a person.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{
    budget::{Breach, BudgetKind},
    ids::{CallNumber, ItemId, Timestamp},
    manifest::{EffectClass, ToolSpec},
};

/// Something that only a person decides. A call is held exactly as long as an open interrupt names it, and the whole run exactly as long as
/// an open interrupt names no call.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Interrupt {
    /// The number of the journal event that opened it, which identifies it within its run.
    #[serde(rename = "n")]
    pub number: u64,
    /// Why a person must decide.
    pub cause: Cause,
    /// The call that is held. `None` if the whole run is held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallNumber>,
    /// The item that the person must have seen: the call with its exact arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shows: Option<ItemId>,
    /// When the wait ends without a decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// What happens then.
    #[serde(default, skip_serializing_if = "OnTimeout::is_reject")]
    pub on_timeout: OnTimeout,
    /// The number of different people who must approve.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub needs: u8,
    /// The people who have approved so far.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<Arc<str>>,
    /// The budget that continuing would exceed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<PassedBudget>,
    /// When it was opened. Absent in journals of versions that did not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
}

/// A budget that a run waits for, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PassedBudget {
    /// The budget, its limit and what was observed.
    #[serde(flatten)]
    pub breach: Breach,
    /// When the run began to wait.
    pub at: Timestamp,
}

impl PassedBudget {
    /// The lowest limit with which the run can continue.
    pub fn limit_min(&self) -> u64 {
        match self.breach.kind {
            BudgetKind::Iterations | BudgetKind::Calls | BudgetKind::Children => self.breach.observed,
            BudgetKind::Tokens | BudgetKind::WallMs | BudgetKind::CostMicroUsd => self.breach.observed.saturating_add(1),
        }
    }
}

fn one() -> u8 {
    1
}

fn is_one(n: &u8) -> bool {
    *n == 1
}

impl Interrupt {
    /// An interrupt without a deadline that one decision resolves.
    pub(crate) fn new(number: u64, cause: Cause, call: Option<CallNumber>) -> Self {
        Interrupt {
            number,
            cause,
            call,
            shows: None,
            until: None,
            on_timeout: OnTimeout::Reject,
            needs: 1,
            approvals: Vec::new(),
            budget: None,
            at: None,
        }
    }

    /// Whether a result of the held call is still taken: the call may have been started before it was held.
    pub fn takes_results(&self) -> bool {
        match self.cause {
            Cause::UnknownOutcome | Cause::Budget | Cause::OwnersLost | Cause::Panicked => true,
            Cause::Approval | Cause::Question => false,
        }
    }
}

/// Why a person must decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// A rule demands a person's approval before the call starts.
    Approval,
    /// The model asks a person: the answer is the result of the call.
    Question,
    /// The outcome of the call is unknown, and it must not run twice.
    UnknownOutcome,
    /// Continuing would exceed a budget of the run.
    Budget,
    /// The run lost several owners in a row without progress.
    OwnersLost,
    /// A step or an executor of the run panicked.
    Panicked,
}

impl Cause {
    /// All causes.
    pub const ALL: [Cause; 6] =
        [Cause::Approval, Cause::Question, Cause::UnknownOutcome, Cause::Budget, Cause::OwnersLost, Cause::Panicked];

    /// The cause as stores and APIs spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            Cause::Approval => "approval",
            Cause::Question => "question",
            Cause::UnknownOutcome => "unknown_outcome",
            Cause::Budget => "budget",
            Cause::OwnersLost => "owners_lost",
            Cause::Panicked => "panicked",
        }
    }

    /// The cause that `as_str` spells this way.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|cause| cause.as_str() == text)
    }
}

/// What happens if the deadline of an interrupt passes without a decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnTimeout {
    /// The call is rejected.
    #[default]
    Reject,
    /// The call is approved.
    Approve,
    /// The run ends.
    End,
}

impl OnTimeout {
    /// The reaction as stores and APIs spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            OnTimeout::Reject => "reject",
            OnTimeout::Approve => "approve",
            OnTimeout::End => "end",
        }
    }

    /// The reaction that `as_str` spells this way.
    pub fn parse(text: &str) -> Option<Self> {
        [OnTimeout::Reject, OnTimeout::Approve, OnTimeout::End].into_iter().find(|reaction| reaction.as_str() == text)
    }

    /// Whether it is the default, which stored records leave out.
    pub(crate) fn is_reject(&self) -> bool {
        *self == OnTimeout::Reject
    }
}

/// How an interrupt was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The call may start with the arguments that were shown.
    Approved,
    /// The call does not start; the model gets an error result.
    Rejected,
    /// A person answered the model's question.
    Answered,
    /// A person recorded the result of the call.
    Recorded,
    /// The call may be started again.
    Released,
    /// The model gets a result that says that the outcome is unknown.
    ReportedToModel,
    /// The budget got a higher limit.
    Raised,
    /// The run continues.
    Resumed,
    /// The run ends.
    Ended,
    /// The deadline passed without a decision.
    TimedOut,
    /// A result of the call arrived after all.
    Reported,
    /// The run ended for another reason.
    Stopped,
}

impl Verdict {
    /// All verdicts.
    pub const ALL: [Verdict; 12] = [
        Verdict::Approved,
        Verdict::Rejected,
        Verdict::Answered,
        Verdict::Recorded,
        Verdict::Released,
        Verdict::ReportedToModel,
        Verdict::Raised,
        Verdict::Resumed,
        Verdict::Ended,
        Verdict::TimedOut,
        Verdict::Reported,
        Verdict::Stopped,
    ];

    /// The verdict that `as_str` spells this way.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|verdict| verdict.as_str() == text)
    }

    /// The verdict as stores and APIs spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Approved => "approved",
            Verdict::Rejected => "rejected",
            Verdict::Answered => "answered",
            Verdict::Recorded => "recorded",
            Verdict::Released => "released",
            Verdict::ReportedToModel => "reported_to_model",
            Verdict::Raised => "raised",
            Verdict::Resumed => "resumed",
            Verdict::Ended => "ended",
            Verdict::TimedOut => "timed_out",
            Verdict::Reported => "reported",
            Verdict::Stopped => "stopped",
        }
    }
}

/// A rule that holds calls until a person approves them. Of several rules the first that matches a call counts. The default holds every call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gate {
    /// A pattern of tool names, in which `*` stands for any text. Without one every tool matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The label of the tool server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// The effect class of the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<EffectClass>,
    /// Whether the run has read results of untrusted tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tainted: Option<bool>,
    /// How long a person has to decide, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_ms: Option<u64>,
    /// What happens after that time.
    #[serde(default, skip_serializing_if = "OnTimeout::is_reject")]
    pub on_timeout: OnTimeout,
    /// The number of different people who must approve.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub approvers: u8,
}

impl Gate {
    /// Whether the rule applies to calls of this tool in a run that is tainted or not.
    pub fn applies_to(&self, tool: &ToolSpec, tainted: bool) -> bool {
        let server = tool.remote.as_ref().map(|remote| remote.server.as_str());
        self.tool.as_deref().is_none_or(|pattern| matches_pattern(pattern, tool.name.as_str()))
            && self.server.as_deref().is_none_or(|label| server == Some(label))
            && self.effect.is_none_or(|effect| effect == tool.effect)
            && self.tainted.is_none_or(|wanted| wanted == tainted)
    }
}

/// Whether a name matches a pattern in which `*` stands for any text.
fn matches_pattern(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut left) = name.strip_prefix(start) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let end = parts.pop().unwrap_or_default();
    for part in parts {
        match left.find(part) {
            Some(at) => left = &left[at + part.len()..],
            None => return false,
        }
    }
    left.ends_with(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_as_they_are_spelled() {
        for reaction in [OnTimeout::Reject, OnTimeout::Approve, OnTimeout::End] {
            assert_eq!(OnTimeout::parse(reaction.as_str()), Some(reaction));
        }
        for cause in Cause::ALL {
            assert_eq!(Cause::parse(cause.as_str()), Some(cause));
        }
        for verdict in Verdict::ALL {
            assert_eq!(Verdict::parse(verdict.as_str()), Some(verdict));
        }
        assert!(OnTimeout::parse("wait").is_none() && Cause::parse("mood").is_none() && Verdict::parse("").is_none());
    }

    #[test]
    fn what_is_usual_takes_no_bytes() {
        let stored = serde_json::to_string(&Interrupt::new(7, Cause::Panicked, None)).unwrap();
        assert_eq!(stored, r#"{"n":7,"cause":"panicked"}"#);
        let read: Interrupt = serde_json::from_str(&stored).unwrap();
        assert_eq!(read, Interrupt::new(7, Cause::Panicked, None));
    }

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, name) in [("*", ""), ("*", "a"), ("mail*", "mail"), ("*_file", "write_file"), ("a*b*c", "a_b_b_c"), ("a", "a")] {
            assert!(matches_pattern(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("a", "ab"), ("mail*", "mai"), ("*_file", "file"), ("a*b*c", "a_c"), ("ab*ba", "aba"), ("", "a")] {
            assert!(!matches_pattern(pattern, name), "{pattern} {name}");
        }
    }
}
