//! The bodies of the fuzz targets, on random input: a taste of a night of fuzzing, and
//! proof that the targets still hold what they claim.

use proptest::{collection::vec, prelude::*};

#[expect(unreachable_pub, reason = "the fuzz targets need it public")]
#[path = "../../fuzz/src/lib.rs"]
mod bodies;

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    vec(
        prop_oneof![Just(0), Just(0xFF), 0..32_u8, any::<u8>()],
        0..120,
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn any_bytes_as_keys(data in bytes()) {
        bodies::keys(&data);
    }

    #[test]
    fn any_bytes_as_values(data in bytes()) {
        bodies::values(&data);
    }

    #[test]
    fn any_bytes_as_a_handle(data in bytes(), like in "[a-zA-Z0-9_-]{88}") {
        bodies::handle(&data);
        bodies::handle(like.as_bytes());
    }

    #[test]
    fn any_text_as_names(
        text in "[ab]{0,3}\n[a%|_]{0,4}\n(%RETRY%|%DLQ%|rmq_sys_)?[a%/+ü_]{0,8}",
        data in bytes(),
    ) {
        bodies::names(text.as_bytes());
        bodies::names(&data);
    }
}
