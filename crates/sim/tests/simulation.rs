//! x
use windlass_sim::world::simulate;
#[test]
fn one_seed() {
    let seed = std::env::var("SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    let outcome = simulate(seed, None);
    println!("{outcome}");
    println!("{}", outcome.facts);
}
#[test]
fn some() {
    let from: u64 = std::env::var("FROM").ok().and_then(|s| s.parse().ok()).unwrap_or(0);
    let n: u64 = std::env::var("SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(100);
    let start = std::time::Instant::now();
    let mut facts = windlass_sim::world::Facts::default();
    let mut bad = 0;
    for seed in from..from + n {
        let t = std::time::Instant::now();
        let o = simulate(seed, None);
        facts.add(&o.facts);
        let el = t.elapsed().as_millis();
        if el > 2000 { println!("seed {seed} took {el} ms"); }
        if let Some(v) = &o.violation { bad += 1; println!("seed {seed} {} {:.300}", v.promise, v.text); }
    }
    println!("{n} seeds, {bad} bad, {:?}\n{facts}\nmissing {:?}", start.elapsed(), facts.missing());
}
