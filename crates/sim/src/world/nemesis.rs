//! Keeps the processes running, and disturbs them.

use std::sync::{Arc, atomic::Ordering::SeqCst};

use super::{Fact, LEASE_MS, World, node::Node, pass_ms};

/// Starts every process, and starts another one whenever one has died.
pub(super) fn raise_nodes(world: &Arc<World>) {
    for slot in 0..world.options.nodes {
        let world = world.clone();
        tokio::spawn(async move {
            loop {
                let node = Node::start(&world, slot);
                node.died().await;
                let ms = if world.is_calm() { 500 } else { world.between(0, 2 * LEASE_MS) };
                pass_ms(ms).await;
            }
        });
    }
}

/// Injects faults for as long as faults last.
pub(super) async fn inject_faults(world: &Arc<World>) {
    while world.elapsed_ms() < world.options.chaos_ms {
        pass_ms(world.between(200, 3_000)).await;
        let nodes = world.slots.lock().all();
        if nodes.is_empty() {
            continue;
        }
        let node = nodes[world.between(0, nodes.len() as u64 - 1) as usize].clone();
        let [kill, pause, drain, jump, power] = world.options.nemesis;
        if world.fault(kill, 100) {
            node.kill("for no reason");
        } else if world.fault(pause, 100) {
            node.pause(world.between(1_000, 4 * LEASE_MS));
        } else if world.fault(drain, 100) {
            drain_slowly(world, node);
        } else if world.fault(jump, 100) {
            world.saw(Fact::ClockJump);
            let most = 2 * world.options.skew_ms + 5_000;
            node.set_clock(world.between(0, 2 * most) as i64 - most as i64);
        } else if world.fault(power, 100) {
            lose_power(world);
        }
    }
}

/// Ends the faults: every process continues, with the right time.
pub(super) fn heal(world: &Arc<World>) {
    let nodes = world.slots.lock().all();
    for node in nodes {
        node.wake();
        node.set_clock(0);
    }
}

fn drain_slowly(world: &Arc<World>, node: Arc<Node>) {
    let Some(engine) = node.engine() else { return };
    world.log(&node.name, "is drained");
    node.is_drained.store(true, SeqCst);
    let world = world.clone();
    tokio::spawn(async move {
        tokio::select! {
            biased;
            () = node.died() => {}
            () = engine.drain() => {
                world.saw(Fact::Drained);
                node.kill("drained");
            }
        }
    });
}

/// Loses what was not flushed, and ends every process.
fn lose_power(world: &Arc<World>) {
    world.saw(Fact::PowerLoss);
    world.log("world", "the power fails");
    world.power.fetch_add(1, SeqCst);
    let nodes = world.slots.lock().all();
    for node in nodes {
        node.kill("with the power");
    }
}
