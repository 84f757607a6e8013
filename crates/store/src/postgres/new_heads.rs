//! The part of two statements that writes heads.

/// The new values of heads. Those that are new are inserted.
macro_rules! put_heads {
    () => {
        "INSERT INTO heads (tenant, agent, status, epoch, seq, run, owner, waiting, deadline, wake_at, pending, queued, runs, local,
            quarantined, held)
        SELECT unnest($1::text[]), unnest($2::text[]), unnest($3::text[]), unnest($4::bigint[]),
            unnest($5::bigint[]), unnest($6::bytea[]), unnest($7::bigint[]), unnest($8::bigint[]), unnest($9::bigint[]),
            unnest($10::bigint[]), unnest($11::bigint[]), unnest($12::bigint[]), unnest($13::bigint[]),
            unnest($14::bigint[]), unnest($15::text[]), unnest($16::boolean[])"
    };
}

pub(super) use put_heads;
