//! Sessions: Apache's routes and the signed cookie.

use super::fixture::{Fixture, letter, member, members, settings, sticky};
use crate::balancer_settings::{BalancerSettings, StickySettings};
use crate::member_settings::{AdminState, MemberRole, MemberSettings};
use crate::{NoMember, SessionUse};

fn routed(name: char, change: impl FnOnce(&mut MemberSettings)) -> MemberSettings {
    member(name, |member| {
        member.route = format!("r{name}").into();
        change(member);
    })
}

fn with_sessions(members: Vec<MemberSettings>, sticky: StickySettings) -> BalancerSettings {
    let mut settings = settings(members);
    settings.sticky = Some(sticky);
    settings
}

fn abc() -> Vec<MemberSettings> {
    ['a', 'b', 'c'].map(|name| routed(name, |_| {})).into()
}

#[test]
fn a_session_stays_at_its_member() {
    let fixture = Fixture::new(with_sessions(abc(), sticky()));
    assert_eq!(fixture.session_sequence("x.rb", 5), "bbbbb");
    let lease = fixture.choose_session("x.rb").unwrap();
    assert_eq!(
        (lease.session(), lease.new_cookie()),
        (SessionUse::Kept, None)
    );
    for unknown in ["x.rz", "rb", "x.", ""] {
        let lease = fixture.choose_session(unknown).unwrap();
        assert_eq!(lease.session(), SessionUse::Changed);
    }
    assert_eq!(
        Fixture::of("ab").choose().unwrap().session(),
        SessionUse::None
    );
}

#[test]
fn sessions_count_for_the_shares_as_in_apache() {
    let fixture = Fixture::new(with_sessions(abc(), sticky()));
    let mixed: String = (0..12)
        .map(|at| match at % 2 {
            0 => fixture.answer(fixture.choose_session("x.ra")),
            _ => fixture.answer(fixture.choose()),
        })
        .collect();
    assert_eq!(mixed, "abacabacabac");
}

#[test]
fn a_draining_member_gets_only_its_sessions() {
    let fixture = Fixture::new(with_sessions(abc(), sticky()));
    fixture.edit('b', |member| member.admin = AdminState::Draining);
    assert_eq!(fixture.session_sequence("x.rb", 3), "bbb");
    assert!(!fixture.sequence(9).contains('b'));
    fixture.edit('b', |member| member.admin = AdminState::Disabled);
    assert!(!fixture.session_sequence("x.rb", 9).contains('b'));
}

#[test]
fn a_redirect_replaces_an_unusable_member() {
    let redirected = |name, to: &str| routed(name, |member| member.redirect = to.into());
    let members = vec![
        redirected('a', "rb"),
        redirected('b', "rc"),
        routed('c', |_| {}),
    ];
    let fixture = Fixture::new(with_sessions(members, sticky()));
    fixture.edit('a', |member| member.admin = AdminState::Disabled);
    assert_eq!(fixture.session_sequence("x.ra", 3), "bbb");
    let lease = fixture.choose_session("x.ra").unwrap();
    assert_eq!(lease.session(), SessionUse::Changed);
    fixture.edit('b', |member| member.admin = AdminState::Disabled);
    assert_eq!(fixture.session_sequence("x.ra", 3), "ccc");
}

#[test]
fn redirects_in_a_circle_end() {
    let redirected = |name, to: &str| routed(name, |member| member.redirect = to.into());
    let members = vec![
        redirected('a', "rb"),
        redirected('b', "ra"),
        routed('c', |_| {}),
    ];
    let fixture = Fixture::new(with_sessions(members, sticky()));
    fixture.edit('a', |member| member.admin = AdminState::Disabled);
    fixture.edit('b', |member| member.admin = AdminState::Disabled);
    assert_eq!(fixture.session_sequence("x.ra", 2), "cc");
}

#[test]
fn a_standby_with_the_route_comes_last() {
    let members = vec![
        routed('a', |member| {
            member.role = MemberRole::Standby;
            member.route = "rb".into();
        }),
        routed('b', |_| {}),
        routed('c', |_| {}),
    ];
    let fixture = Fixture::new(with_sessions(members, sticky()));
    assert_eq!(fixture.session_sequence("x.rb", 2), "bb");
    fixture.edit('b', |member| member.admin = AdminState::Disabled);
    assert_eq!(fixture.session_sequence("x.rb", 2), "aa");
}

#[test]
fn a_session_of_an_unusable_member_moves_unless_strict() {
    let fixture = Fixture::new(with_sessions(abc(), sticky()));
    fixture.fail_connection('b');
    assert!(!fixture.session_sequence("x.rb", 6).contains(['b', '!']));
    fixture.edit_balancer(|settings| {
        settings.sticky.as_mut().expect("sessions").is_strict = true;
    });
    let refused = fixture.choose_session("x.rb").err();
    assert_eq!(refused, Some(NoMember::SessionLost));
    // A route without a member binds no request.
    assert!(fixture.choose_session("x.rz").is_ok());
    fixture.edit_balancer(|settings| settings.sticky = None);
    assert!(fixture.choose_session("x.rb").is_ok());
}

#[test]
fn a_strict_session_is_served_if_all_members_are_ejected() {
    let is_strict = true;
    let fixture = Fixture::new(with_sessions(
        abc(),
        StickySettings {
            is_strict,
            ..sticky()
        },
    ));
    for name in ['a', 'b', 'c'] {
        fixture.fail_connection(name);
    }
    assert_eq!(fixture.session_sequence("x.rb", 1), "b");
}

#[test]
fn a_retry_of_a_session_goes_on_at_another_member() {
    let fixture = Fixture::new(with_sessions(abc(), sticky()));
    let tried = [fixture.member('b').id()];
    let request = crate::ChooseRequest {
        session: Some("x.rb"),
        tried: &tried,
        ..fixture.request()
    };
    assert_ne!(letter(&fixture.balancer.choose(&request).unwrap()), 'b');
}

#[test]
fn a_signed_cookie_binds_a_client() {
    let is_signed = true;
    let mut members = abc();
    members.push(member('d', |_| {}));
    let fixture = Fixture::new(with_sessions(
        members,
        StickySettings {
            is_signed,
            ..sticky()
        },
    ));
    for name in ['a', 'b', 'c', 'd'] {
        let lease = fixture.lease_of(name);
        let cookie = lease.new_cookie().unwrap().to_owned();
        assert_eq!(lease.session(), SessionUse::Changed);
        assert_eq!(cookie.starts_with(&format!("r{name}.")), name != 'd');
        assert_eq!(
            fixture.session_sequence(&cookie, 5),
            name.to_string().repeat(5)
        );
        let kept = fixture.choose_session(&cookie).unwrap();
        assert_eq!(
            (kept.session(), kept.new_cookie()),
            (SessionUse::Kept, None)
        );
        // The value of the cookie is stable, and forged values name no member.
        assert_eq!(fixture.lease_of(name).new_cookie(), Some(&*cookie));
        let forged = format!("{}A", &cookie[..cookie.len() - 1]);
        for value in [forged.as_str(), &cookie[..5], "x.rb", "rb.", ""] {
            if value != cookie {
                let lease = fixture.choose_session(value).unwrap();
                assert_eq!(lease.session(), SessionUse::Changed);
            }
        }
    }
}

#[test]
fn a_signed_session_of_an_unusable_member_gets_a_new_cookie() {
    let is_signed = true;
    let fixture = Fixture::new(with_sessions(
        members("ab"),
        StickySettings {
            is_signed,
            ..sticky()
        },
    ));
    let cookie = fixture.lease_of('a').new_cookie().unwrap().to_owned();
    fixture.fail_connection('a');
    let moved = fixture.choose_session(&cookie).unwrap();
    assert_eq!(
        (letter(&moved), moved.session()),
        ('b', SessionUse::Changed)
    );
    assert!(moved.new_cookie().is_some());
}

#[test]
fn a_signed_strict_session_is_lost_with_its_member() {
    let sticky = StickySettings {
        is_signed: true,
        is_strict: true,
        ..sticky()
    };
    let fixture = Fixture::new(with_sessions(members("ab"), sticky));
    let cookie = fixture.lease_of('a').new_cookie().unwrap().to_owned();
    fixture.edit('a', |member| member.admin = AdminState::Disabled);
    let refused = fixture.choose_session(&cookie).err();
    assert_eq!(refused, Some(NoMember::SessionLost));
}

#[test]
fn a_new_route_ends_the_old_cookie() {
    let is_signed = true;
    let fixture = Fixture::new(with_sessions(
        abc(),
        StickySettings {
            is_signed,
            ..sticky()
        },
    ));
    let old = fixture.lease_of('a').new_cookie().unwrap().to_owned();
    fixture.edit('a', |member| member.route = "new".into());
    assert_eq!(
        fixture.choose_session(&old).unwrap().session(),
        SessionUse::Changed
    );
    let new = fixture.lease_of('a').new_cookie().unwrap().to_owned();
    assert!(new.starts_with("new."));
    assert_eq!(fixture.session_sequence(&new, 3), "aaa");
}
