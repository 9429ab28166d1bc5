//! cuRAND, as far as opening a device goes: Candle makes a generator for each, and nothing here draws from it.

use crate::driver::library;

library! {
    fn curandCreateGenerator(generator: *mut u64, _kind: i32) |driver| {
        // SAFETY: the caller's place for one handle.
        unsafe { generator.write(driver.random.open(())) };
        Ok(())
    }

    fn curandSetPseudoRandomGeneratorSeed(generator: u64, _seed: u64) |driver| {
        driver.random.get(generator).map(drop)
    }

    fn curandSetStream(generator: u64, stream: u64) |driver| {
        driver.random.get(generator)?;
        driver.streams.get(stream).map(drop)
    }

    fn curandDestroyGenerator(generator: u64) |driver| {
        driver.random.close(generator).map(drop)
    }
}
