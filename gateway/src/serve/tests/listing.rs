//! Pages of collectors.

use super::*;

#[test]
fn pages_show_every_collector_once_whatever_their_size() {
    let world = World::new(&Estate::new().tier("a/one", &[("tier", "one")], "one: 1\n"));
    for first in [0, 100, 200] {
        let link = world.link();
        for agent in first..first + 7 {
            world.send(link, &described(agent, 0, &[("tier", "one")]));
        }
    }
    world.link();
    for agent in 300..320 {
        world.poll(&message(agent, 4));
    }
    let all = world.server.collectors(&world.links, now(3), Cursor::default(), 1_000);
    assert_eq!((all.rows.len(), all.next), (41, None));
    for limit in [1, 3, 7, 40, 41, 42] {
        let mut rows = Vec::new();
        let mut from = Some(Cursor::default());
        while let Some(cursor) = from {
            let page = world.server.collectors(&world.links, now(3), cursor, limit);
            assert!(page.rows.len() <= limit);
            rows.extend(page.rows);
            from = page.next.map(|next| next.to_string().parse().expect("our own text"));
        }
        assert_eq!(rows, all.rows, "{limit}");
    }
}

#[test]
fn a_row_says_what_the_session_knows() {
    let world = World::new(&Estate::new().tier("a/one", &[("tier", "one")], "one: 1\n"));
    let link = world.link();
    let sent = described(1, 5, &[("tier", "one"), ("host.name", "h1")]);
    world.send(link, &sent);
    let row = world.on(link, |link| world.server.collector(link, now(31), uid(1)));
    let row = row.expect("agent 1");
    assert_eq!(row.tier.as_deref(), Some("a/one"));
    assert_eq!(
        (row.arm, row.delivery),
        (Some(render::snapshot::Arm::None), Some(Delivery::Pending))
    );
    assert_eq!((row.sequence, row.capabilities, row.heard_seconds_ago), (5, REPORTS, 30));
    assert_eq!(row.attributes, [("tier".into(), "one".into())], "what head mentions");
    let content = artefact_of("one: 1\n").content_hash().to_string();
    assert_eq!(row.offered.map(|content| content.to_string()).as_deref(), Some(&content[..32]));
    assert_eq!((row.reported, row.healthy), (None, None));
    assert_eq!(world.on(link, |link| world.server.collector(link, now(31), uid(2))), None);
}
