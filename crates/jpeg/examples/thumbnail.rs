//! Writes a JPEG at 1/8 of its size as a PPM file: `cargo run --example thumbnail -- photo.jpg thumbnail.ppm`.

use std::io::Write;

use dsconvert_jpeg::{DecodeOptions, Decoder, PixelFormat, Scale};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let [input, output] = &arguments[..] else { return Err("usage: thumbnail INPUT.jpg OUTPUT.ppm".into()) };
    let bytes = std::fs::read(input)?;
    let options = DecodeOptions::new().scale(Scale::Eighth).format(PixelFormat::Rgb);
    let image = Decoder::new().decode(&bytes, &options)?;
    let mut file = std::fs::File::create(output)?;
    write!(file, "P6\n{} {}\n255\n", image.info.width, image.info.height)?;
    file.write_all(&image.pixels)?;
    Ok(())
}
