//! Over real NATS: what is published, what a tool service makes of it, and what happens when NATS is not there.

mod bells;
mod outage;
mod published;
mod service;

/// What the servers here are configured with, besides NATS.
const CONFIG: &str = "
limits: { sweep_interval: 50ms }
tools:
  external:
    - { name: echo, effect: read }
    - { name: pay, effect: write }
    - { name: dotted.tool, effect: read }
agents:
  a: { tools: [echo, pay] }
  a.b: { tools: [dotted.tool] }
";
