//! Convolution of one channel, independent of how its sums are computed.

/// The inputs of one channel.
#[derive(Clone, Copy)]
pub(super) struct Channel<'a, F> {
    /// The length of a sequence.
    pub(super) len: usize,
    /// The sequences (B, L).
    pub(super) u: &'a [F],
    /// The taps that have an effect.
    pub(super) kernel: &'a [F],
}

/// Buffers for the gradients of a channel, if they are needed; the gradient of the kernel is zero on entry.
pub(super) struct ChannelGradients<'a, F> {
    pub(super) u: Option<&'a mut [F]>,
    pub(super) kernel: Option<&'a mut [F]>,
}

/// A way to compute the sums of a convolution.
pub(super) trait ConvolutionSums<F>: Sync {
    /// Scratch memory for any number of channels.
    type Memory: Send;

    fn memory(&self) -> Self::Memory;

    /// Writes y (B, L).
    fn forward(&self, memory: &mut Self::Memory, channel: Channel<F>, y: &mut [F]);

    /// Writes the gradients, given that of y (B, L).
    fn backward(&self, memory: &mut Self::Memory, channel: Channel<F>, gy: &[F], gradients: ChannelGradients<F>);
}
