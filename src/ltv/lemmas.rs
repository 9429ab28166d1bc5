//! The paper's two lemmas as computations: softmax attention is separable with infinitely many features (Lemma 1), and
//! a larger state can always reproduce a smaller one (Lemma 2).

/// T_P(x) = Σ_{p≤P} x^p / p!.
pub fn taylor(x: f64, order: usize) -> f64 {
    let mut term = 1.0;
    let mut sum = 1.0;
    for p in 1..=order {
        term *= x / p as f64;
        sum += term;
    }
    sum
}

/// Lemma 1's features [1, x, x⊗x/√2!, ..] up to order P: Σ m^p numbers with features(q)·features(k) = T_P(q·k).
pub fn tensor_features(x: &[f64], order: usize) -> Vec<f64> {
    let mut features = vec![1.0];
    let mut power = vec![1.0];
    for p in 1..=order {
        let scale = (p as f64).sqrt().recip();
        power = power.iter().flat_map(|a| x.iter().map(move |b| a * b * scale)).collect();
        features.extend(&power);
    }
    features
}

/// Features with the same inner product from distinct monomials only, (24): C(m+P, P) numbers, x^ν / √ν! each.
pub fn monomial_features(x: &[f64], order: usize) -> Vec<f64> {
    Monomials::new(x.len(), order).of(x)
}

/// The distinct monomials of some variables up to an order, by degree.
pub struct Monomials {
    /// Monomials of every degree from 1 on; degree 0 has only the constant 1, which is not stored.
    pub degrees: Vec<Vec<Monomial>>,
}

/// A monomial: one of the next lower degree times a variable not before that one's last variable.
#[derive(Clone, Copy)]
pub struct Monomial {
    /// Index among the monomials of the next lower degree.
    pub parent: u32,
    /// The variable.
    pub variable: u32,
    /// The exponent of the variable in this monomial.
    power: u32,
}

impl Monomials {
    /// Builds the monomials of `variables` variables up to `order`.
    pub fn new(variables: usize, order: usize) -> Self {
        let mut degrees: Vec<Vec<Monomial>> = Vec::with_capacity(order);
        for _ in 0..order {
            let below = degrees.last();
            let parents = below.map_or(1, Vec::len);
            let mut degree = Vec::new();
            for parent in 0..parents {
                let last = below.map(|below| below[parent]);
                let first = last.map_or(0, |last| last.variable);
                degree.extend((first..variables as u32).map(|variable| Monomial {
                    parent: parent as u32,
                    variable,
                    power: match last {
                        Some(last) if last.variable == variable => last.power + 1,
                        _ => 1,
                    },
                }));
            }
            degrees.push(degree);
        }
        Self { degrees }
    }

    /// Number of monomials including the constant, C(m+P, P).
    pub fn count(variables: usize, order: usize) -> usize {
        let (few, many) = (variables.min(order), variables.max(order) as u128);
        let count = (1..=few as u128).try_fold(1u128, |count, p| Some(count.checked_mul(many + p)? / p));
        count.map_or(usize::MAX, |count| count.try_into().unwrap_or(usize::MAX))
    }

    /// x^ν / √ν! for every ν, the constant first.
    pub fn of(&self, x: &[f64]) -> Vec<f64> {
        let mut features = vec![1.0];
        let mut below = 0..1;
        for degree in &self.degrees {
            let start = features.len();
            for monomial in degree {
                let parent = features[below.start + monomial.parent as usize];
                let scale = f64::from(monomial.power).sqrt().recip();
                features.push(parent * x[monomial.variable as usize] * scale);
            }
            below = start..features.len();
        }
        features
    }
}

/// Causal attention with weights proportional to `score(q_i·k_j)`; rows of length m, m and d.
pub fn attention(q: &[Vec<f64>], k: &[Vec<f64>], v: &[Vec<f64>], score: impl Fn(f64) -> f64) -> Vec<Vec<f64>> {
    let row = |(i, q_i): (usize, &Vec<f64>)| {
        let weights: Vec<f64> = k[..=i].iter().map(|k_j| score(dot(q_i, k_j))).collect();
        let eta: f64 = weights.iter().sum();
        let mut y = vec![0.0; v[0].len()];
        for (weight, v_j) in weights.iter().zip(v) {
            axpy(weight / eta, v_j, &mut y);
        }
        y
    };
    q.iter().enumerate().map(row).collect()
}

/// Linear attention as a recurrence over the features of Lemma 1, truncated at `order`.
pub fn truncated_softmax(q: &[Vec<f64>], k: &[Vec<f64>], v: &[Vec<f64>], order: usize) -> Vec<Vec<f64>> {
    let channels = v[0].len();
    let monomials = Monomials::new(q[0].len(), order);
    let mut state: Vec<Vec<f64>> = Vec::new();
    let mut sum: Vec<f64> = Vec::new();
    let step = |((q_i, k_i), v_i): ((&Vec<f64>, &Vec<f64>), &Vec<f64>)| {
        let (phi, psi) = (monomials.of(q_i), monomials.of(k_i));
        state.resize_with(channels, || vec![0.0; psi.len()]);
        sum.resize(psi.len(), 0.0);
        axpy(1.0, &psi, &mut sum);
        for (s, value) in state.iter_mut().zip(v_i) {
            axpy(*value, &psi, s);
        }
        let eta = dot(&phi, &sum);
        state.iter().map(|s| dot(&phi, s) / eta).collect()
    };
    q.iter().zip(k).zip(v).map(step).collect()
}

/// The bound |y_P - y|_∞ ≤ 2δ/(1-δ) max|v|, where δ is the worst relative error of T_P over the visible scores;
/// infinite if δ ≥ 1.
pub fn truncation_bound(q: &[Vec<f64>], k: &[Vec<f64>], v: &[Vec<f64>], order: usize) -> f64 {
    let visible = (0..q.len()).flat_map(|i| (0..=i).map(move |j| (i, j)));
    let delta = visible
        .map(|(i, j)| {
            let x = dot(&q[i], &k[j]);
            (taylor(x, order) / x.exp() - 1.0).abs()
        })
        .fold(0.0, f64::max);
    if delta >= 1.0 {
        return f64::INFINITY;
    }
    let largest = v.iter().flatten().fold(0.0, |m: f64, x| m.max(x.abs()));
    2.0 * delta / (1.0 - delta) * largest
}

/// The matrices of one step of a system, as rows; Λ may be any square matrix.
pub struct SystemStep {
    /// Λ_i, N rows of N.
    pub lambda: Vec<Vec<f64>>,
    /// B_i, N rows of d.
    pub b: Vec<Vec<f64>>,
    /// C_i, d rows of N.
    pub c: Vec<Vec<f64>>,
    /// D_i, d rows of d.
    pub d: Vec<Vec<f64>>,
}

impl SystemStep {
    /// Lemma 2: `Λ' = [[Λ,0],[Λ̄,Λ̂]]`, `B' = [B; B̄]`, `C' = [C, 0]`, `D' = D`. The output is the same.
    pub fn enlarged(&self, lambda_bar: &[Vec<f64>], lambda_hat: &[Vec<f64>], b_bar: &[Vec<f64>]) -> Self {
        let extra = b_bar.len();
        let padded = |rows: &[Vec<f64>]| -> Vec<Vec<f64>> {
            rows.iter().map(|row| row.iter().copied().chain(vec![0.0; extra]).collect()).collect()
        };
        let mut lambda = padded(&self.lambda);
        lambda.extend(lambda_bar.iter().zip(lambda_hat).map(|(a, b)| [&a[..], b].concat()));
        Self { lambda, b: [&self.b[..], b_bar].concat(), c: padded(&self.c), d: self.d.clone() }
    }

    /// Advances the state by the input `u` and returns the output.
    pub fn advance(&self, h: &mut Vec<f64>, u: &[f64]) -> Vec<f64> {
        *h = sum(&times(&self.lambda, h), &times(&self.b, u));
        sum(&times(&self.c, h), &times(&self.d, u))
    }
}

/// Runs a system over the inputs `u` and returns the outputs and the last state.
pub fn run(steps: &[SystemStep], u: &[Vec<f64>]) -> (Vec<Vec<f64>>, Vec<f64>) {
    let mut h = vec![0.0; steps.first().map_or(0, |s| s.b.len())];
    let outputs = steps.iter().zip(u).map(|(step, u_i)| step.advance(&mut h, u_i)).collect();
    (outputs, h)
}

fn times(matrix: &[Vec<f64>], x: &[f64]) -> Vec<f64> {
    matrix.iter().map(|row| dot(row, x)).collect()
}

fn sum(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a + b).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn axpy(scale: f64, x: &[f64], y: &mut [f64]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y += scale * x;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::rng::Rng;

    fn rows(name: &str, n: usize, width: usize) -> Vec<Vec<f64>> {
        let mut rng = Rng::new(5, name, 0);
        let mut row = || (0..width).map(|_| rng.normals().0 * 0.7).collect();
        (0..n).map(|_| row()).collect()
    }

    #[test]
    fn both_feature_maps_give_the_taylor_polynomial() {
        let x = rows("x", 6, 3);
        for order in 0..=5 {
            for (q, k) in x.iter().zip(&x[1..]) {
                let wanted = taylor(dot(q, k), order);
                let full = dot(&tensor_features(q, order), &tensor_features(k, order));
                let distinct = dot(&monomial_features(q, order), &monomial_features(k, order));
                assert!((full - wanted).abs() < 1e-13, "{order}: {full} {wanted}");
                assert!((distinct - wanted).abs() < 1e-13, "{order}: {distinct} {wanted}");
            }
        }
    }

    #[test]
    fn feature_counts_are_a_geometric_sum_and_a_binomial() {
        let x = [0.1, 0.2, 0.3];
        assert_eq!(tensor_features(&x, 4).len(), 1 + 3 + 9 + 27 + 81);
        assert_eq!(monomial_features(&x, 4).len(), 35); // C(7, 4)
        assert_eq!((Monomials::count(3, 4), Monomials::count(4, 3)), (35, 35));
        assert_eq!(Monomials::count(usize::MAX / 2, 8), usize::MAX);
    }

    #[test]
    fn truncated_attention_stays_within_its_bound_and_converges() {
        let (q, k, v) = (rows("q", 7, 3), rows("k", 7, 3), rows("v", 7, 2));
        let exact = attention(&q, &k, &v, f64::exp);
        let mut last = f64::INFINITY;
        for order in [6, 8, 10, 12] {
            let y = truncated_softmax(&q, &k, &v, order);
            let pairs = y.iter().flatten().zip(exact.iter().flatten());
            let error = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(error <= truncation_bound(&q, &k, &v, order));
            assert!(error < last / 5.0, "order {order}: {error} after {last}");
            last = error;
        }
    }

    #[test]
    fn only_even_orders_are_positive_everywhere() {
        assert!((-60..60).all(|x| taylor(f64::from(x) / 4.0, 4) > 0.0));
        assert!(taylor(-5.0, 3) < 0.0);
    }
}
