//! With a real NATS server: the published messages, a tool service that uses them, and outages of NATS.

mod bells;
mod outage;
mod published;
mod service;

/// The configuration of the servers here, besides NATS.
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
