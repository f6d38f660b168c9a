//! Inks to light, without a profile.

/// Converts inks, 255 being full, to RGB: each channel is what its ink and black together let through.
pub fn to_rgb(inks: &[u8], rgb: &mut [u8]) {
    let light = |ink: u8, black: u8| ((u32::from(255 - ink) * u32::from(255 - black) + 127) / 255) as u8;
    for (to, [c, m, y, k]) in rgb.as_chunks_mut::<3>().0.iter_mut().zip(inks.as_chunks::<4>().0) {
        *to = [light(*c, *k), light(*m, *k), light(*y, *k)];
    }
}

/// Inverts inks in place.
pub fn invert(inks: &mut [u8]) {
    inks.iter_mut().for_each(|ink| *ink = 255 - *ink);
}
