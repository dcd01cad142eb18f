//! Writes an estate of that many Tiers, authored by rule and rendered, into a new directory.
//!
//! ```text
//! cargo run --release -p benches --example synthetic_estate -- DIR TIERS
//! ```

use std::error::Error;
use std::fs;
use std::path::Path;

use benches::synthetic::{Size, committed};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(directory), Some(tiers)) = (arguments.next(), arguments.next()) else {
        return Err("usage: synthetic_estate DIR TIERS".into());
    };
    let directory = Path::new(&directory);
    // Rollouts say nothing about what a message costs, and a server to compare with may have none.
    let size = Size { rollouts: 0, ..Size::of(tiers.parse()?) };
    let estate = committed(size)?;
    fs::create_dir(directory)?;
    for (path, bytes) in &estate.files {
        let path = directory.join(path);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(path, bytes)?;
    }
    println!("{} Tiers, {} files", size.tiers, estate.files.len());
    Ok(())
}
