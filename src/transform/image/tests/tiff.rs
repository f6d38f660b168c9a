//! Tests of TIFF files.

use moxcms::ColorProfile;

use super::files::tiff_of;
use super::*;

const ICC_PROFILE: u16 = 34_675;
const UNDEFINED: u16 = 7;

#[test]
fn profiles_of_any_size_are_applied() {
    let profile = ColorProfile::new_adobe_rgb().encode().unwrap();
    let with_bytes = |more: usize| [&profile[..], &vec![0; more]].concat();
    for (side, profile) in [(1u16, with_bytes(0)), (8, with_bytes(0)), (8, with_bytes(300_000))] {
        let samples = [100, 180, 100].repeat(usize::from(side).pow(2));
        let file = tiff_of((side, side), 3, 8, &[(ICC_PROFILE, UNDEFINED, profile)], &samples);
        let found = pixel(&raw(&file, &[]), 0, 0);
        assert!(found[0] < 90, "{side}: {found:?}");
        assert_eq!(pixel(&raw(&file, &[("icc", "drop")]), 0, 0), [100, 180, 100]);
    }
}
