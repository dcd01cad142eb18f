//! What goes over the wire, read back by prost.

use proptest::prelude::*;
use prost::Message as _;

use super::*;

fn decode(head: &ReplyHead, body: &[u8]) -> opamp::ServerToAgent {
    let bytes = [head.as_slice(), body].concat();
    opamp::ServerToAgent::decode(&bytes[..]).expect("what we send")
}

#[test]
fn an_acknowledgement_is_uid_and_capabilities_in_twenty_bytes() {
    let fields = HeadFields { capabilities: true, ..HeadFields::default() };
    let head = ReplyHead::new(uid(1), fields);
    assert_eq!(head.as_slice().len(), 20);
    let expected = opamp::ServerToAgent {
        instance_uid: uid(1).0.to_vec().into(),
        capabilities: 7,
        ..Default::default()
    };
    assert_eq!(decode(&head, b""), expected);
}

#[test]
fn the_longest_head_fits() {
    let fields = HeadFields { full_state: true, new_uid: Some(uid(2)), capabilities: true };
    let reply = decode(&ReplyHead::new(uid(1), fields), b"");
    assert_eq!(reply.flags, 1);
    assert_eq!(reply.capabilities, 7);
    let new = reply.agent_identification.expect("a new uid").new_instance_uid;
    assert_eq!(new[..], uid(2).0);
}

proptest! {
    #[test]
    fn an_offer_reads_back(artefact in prop::collection::vec(any::<u8>(), 1..40_000)) {
        let head = ReplyHead::new(uid(1), HeadFields::default());
        let reply = decode(&head, &encode_offer(&artefact, &[b'a'; 64]));
        prop_assert_eq!(&reply.instance_uid[..], &uid(1).0[..]);
        prop_assert_eq!(reply.capabilities, 7);
        let config = reply.remote_config.expect("an offer");
        prop_assert_eq!(&config.config_hash[..], &[b'a'; 64][..]);
        let files = config.config.expect("a map").config_map;
        prop_assert_eq!(files.len(), 1);
        let file = files.get("").expect("one entry under the empty name");
        prop_assert_eq!(&file.body[..], &artefact[..]);
        prop_assert_eq!(&file.content_type, "text/yaml");
    }

    #[test]
    fn an_error_stands_alone_and_is_cut_at_a_character(text in ".{0,400}") {
        let reply = decode(
            &ReplyHead::new(uid(1), HeadFields::default()),
            &encode_bad_request(&text),
        );
        let error = reply.error_response.clone().expect("an error");
        prop_assert_eq!(error.r#type, i32::from(opamp::ServerErrorResponseType::BadRequest));
        prop_assert!(text.starts_with(&error.error_message));
        prop_assert!(error.error_message.len() <= ERROR_TEXT_BYTES_MAX);
        prop_assert!(text.len() <= ERROR_TEXT_BYTES_MAX || error.error_message.len() > 508);
        let alone = opamp::ServerToAgent {
            instance_uid: uid(1).0.to_vec().into(),
            error_response: reply.error_response,
            ..Default::default()
        };
        prop_assert_eq!(decode(
            &ReplyHead::new(uid(1), HeadFields::default()),
            &encode_bad_request(&text),
        ), alone);
    }
}

#[test]
fn an_error_for_nobody_has_no_uid() {
    let reply = decode(&ReplyHead::anonymous(), &encode_bad_request("no uid"));
    assert!(reply.instance_uid.is_empty());
    assert!(reply.error_response.is_some());
}
