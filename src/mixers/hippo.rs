//! HiPPO systems in the basis in which they are normal plus low rank (Gu et al. 2022b, theorem 1): A + P Pᵀ = -a I + S
//! with a skew-symmetric S, whose eigenvectors are unitary.

/// HiPPO system with which S4 starts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Hippo {
    /// Scaled Legendre polynomials.
    Legs,
    /// Translated Legendre polynomials; the low-rank part has rank 2.
    Legt,
    /// Truncated Fourier series.
    Fourier,
}

/// Complex number.
type ComplexNumber = [f64; 2];

/// One of each pair of eigenvalues, and P and B in the basis of the eigenvectors.
pub(super) struct NormalPlusLowRank {
    pub lambda: Vec<ComplexNumber>,
    pub p: Vec<Vec<ComplexNumber>>,
    pub b: Vec<ComplexNumber>,
}

/// Smallest -Re Λ, as in the authors' code: the normal part of LegT and of the Fourier series has none.
const LEAST_DECAY: f64 = 1e-4;

/// Real system: A as rows, the columns of P, and B.
pub(super) struct RealSystem {
    pub a: Vec<Vec<f64>>,
    p: Vec<Vec<f64>>,
    pub b: Vec<f64>,
}

fn matrix(n: usize, entry: impl Fn(usize, usize) -> f64) -> Vec<Vec<f64>> {
    (0..n).map(|i| (0..n).map(|j| entry(i, j)).collect()).collect()
}

impl Hippo {
    /// Rank of P.
    pub fn rank(self) -> usize {
        match self {
            Self::Legs | Self::Fourier => 1,
            Self::Legt => 2,
        }
    }

    /// System with `n` states, n even but for LegS, with the time scales of the authors' code (`hippo.py` and `s4.py` of
    /// state-spaces/s4).
    pub fn system(self, n: usize) -> RealSystem {
        let root = |i: usize| (2.0 * i as f64 + 1.0).sqrt();
        match self {
            Self::Legs => RealSystem {
                a: matrix(n, |i, j| match i.cmp(&j) {
                    std::cmp::Ordering::Greater => -root(i) * root(j),
                    std::cmp::Ordering::Equal => -(i as f64 + 1.0),
                    std::cmp::Ordering::Less => 0.0,
                }),
                p: vec![(0..n).map(|i| (i as f64 + 0.5).sqrt()).collect()],
                b: (0..n).map(root).collect(),
            },
            Self::Legt => {
                let sign = |i: usize, j: usize| if i < j && (j - i) % 2 == 1 { -1.0 } else { 1.0 };
                let part = |odd: usize| -> Vec<f64> {
                    (0..n).map(|i| if i % 2 == odd { root(i) * 0.5f64.sqrt() } else { 0.0 }).collect()
                };
                RealSystem {
                    a: matrix(n, |i, j| -0.5 * sign(i, j) * root(i) * root(j)),
                    p: vec![part(0), part(1)],
                    b: (0..n).map(|i| 0.5 * root(i)).collect(),
                }
            }
            Self::Fourier => {
                let b: Vec<f64> = (0..n)
                    .map(|i| match i {
                        0 => 1.0,
                        i if i % 2 == 0 => 2f64.sqrt(),
                        _ => 0.0,
                    })
                    .collect();
                let turn = |i: usize, j: usize| match (i / 2 == j / 2, i.cmp(&j)) {
                    (true, std::cmp::Ordering::Less) => -std::f64::consts::PI * (i / 2) as f64,
                    (true, std::cmp::Ordering::Greater) => std::f64::consts::PI * (i / 2) as f64,
                    _ => 0.0,
                };
                RealSystem { a: matrix(n, |i, j| turn(i, j) - b[i] * b[j]), p: vec![b.clone()], b }
            }
        }
    }

    /// The system with `n` states in the eigenbasis of its normal part, n even.
    pub fn in_eigenbasis(self, n: usize) -> NormalPlusLowRank {
        let RealSystem { mut a, p, b } = self.system(n);
        for column in &p {
            for (row, x) in a.iter_mut().zip(column) {
                row.iter_mut().zip(column).for_each(|(a, y)| *a += x * y);
            }
        }
        let decay = (0..n).map(|i| -a[i][i]).sum::<f64>() / n as f64;
        let mut skew = matrix(n, |i, j| 0.5 * (a[i][j] - a[j][i]));
        let mut vectors = p;
        vectors.push(b);
        tridiagonal(&mut skew, &mut vectors);
        let pairs = eigenpairs(&skew);
        // Eigenvectors (even entries w, odd entries -i u) / √2: the product of the conjugate with a real vector.
        let along = |x: &Vec<f64>| -> Vec<ComplexNumber> {
            let half = 0.5f64.sqrt();
            let dot = |v: &[f64], first: usize| v.iter().zip(x[first..].iter().step_by(2)).map(|(v, x)| v * x).sum();
            let of = |pair: &Eigenpair| -> ComplexNumber {
                let (even, odd): (f64, f64) = (dot(&pair.even, 0), dot(&pair.odd, 1));
                [half * even, half * odd]
            };
            pairs.iter().map(of).collect()
        };
        let mut vectors: Vec<Vec<ComplexNumber>> = vectors.iter().map(along).collect();
        let b = vectors.pop().unwrap_or_default();
        let lambda = pairs.iter().map(|pair| [-decay.max(LEAST_DECAY), pair.frequency]).collect();
        NormalPlusLowRank { lambda, p: vectors, b }
    }
}

/// Makes a skew-symmetric matrix tridiagonal by Householder reflections, which are applied to `vectors` as well.
fn tridiagonal(skew: &mut [Vec<f64>], vectors: &mut [Vec<f64>]) {
    let n = skew.len();
    for k in 0..n.saturating_sub(2) {
        let mut v: Vec<f64> = (k + 1..n).map(|i| skew[i][k]).collect();
        if v[1..].iter().all(|x| *x == 0.0) {
            continue;
        }
        let norm = v.iter().map(|x| x * x).sum::<f64>().sqrt();
        v[0] += norm.copysign(v[0]);
        let scale = 2.0 / v.iter().map(|x| x * x).sum::<f64>();
        let reflect = |x: &mut [f64]| {
            let along = scale * x.iter().zip(&v).map(|(x, v)| x * v).sum::<f64>();
            x.iter_mut().zip(&v).for_each(|(x, v)| *x -= along * v);
        };
        skew.iter_mut().for_each(|row| reflect(&mut row[k + 1..]));
        // Rows are columns with the other sign.
        for i in 0..n {
            let mut column: Vec<f64> = skew[k + 1..].iter().map(|row| row[i]).collect();
            reflect(&mut column);
            skew[k + 1..].iter_mut().zip(column).for_each(|(row, x)| row[i] = x);
        }
        vectors.iter_mut().for_each(|x| reflect(&mut x[k + 1..]));
    }
}

/// Eigenvalue i `frequency` of a tridiagonal skew-symmetric matrix, at least 0, and its eigenvector: real numbers at even
/// places, and imaginary ones, negated, at odd places.
struct Eigenpair {
    frequency: f64,
    even: Vec<f64>,
    odd: Vec<f64>,
}

/// Eigenpairs in the order of frequencies. Such a matrix maps even places to odd ones and back, by G and -Gᵀ: its
/// frequencies are the singular values of the bidiagonal G, found by Jacobi rotations of pairs of columns.
fn eigenpairs(skew: &[Vec<f64>]) -> Vec<Eigenpair> {
    const SWEEPS: usize = 60;
    let m = skew.len() / 2;
    // Columns of G, and of the product of all rotations.
    let mut columns: Vec<[Vec<f64>; 2]> = (0..m)
        .map(|j| [(0..m).map(|i| skew[2 * i + 1][2 * j]).collect(), (0..m).map(|i| f64::from(i == j)).collect()])
        .collect();
    let dot = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
    for _ in 0..SWEEPS {
        let mut turned = false;
        for i in 0..m {
            for j in i + 1..m {
                let (head, tail) = columns.split_at_mut(j);
                let (x, y) = (&mut head[i], &mut tail[0]);
                let (of_x, of_y, cross) = (dot(&x[0], &x[0]), dot(&y[0], &y[0]), dot(&x[0], &y[0]));
                if cross.abs() <= 1e-16 * (of_x * of_y).sqrt() || cross == 0.0 {
                    continue;
                }
                turned = true;
                let ratio = (of_y - of_x) / (2.0 * cross);
                let tangent = ratio.signum() / (ratio.abs() + ratio.hypot(1.0));
                let cos = 1.0 / tangent.hypot(1.0);
                for (x, y) in x.iter_mut().zip(y.iter_mut()) {
                    for (x, y) in x.iter_mut().zip(y.iter_mut()) {
                        (*x, *y) = (cos * (*x - tangent * *y), cos * (*y + tangent * *x));
                    }
                }
            }
        }
        if !turned {
            break;
        }
    }
    let mut pairs: Vec<Eigenpair> = columns
        .into_iter()
        .map(|[image, even]| {
            let frequency = dot(&image, &image).sqrt();
            Eigenpair { frequency, even, odd: image }
        })
        .collect();
    pairs.sort_by(|x, y| x.frequency.total_cmp(&y.frequency));
    let largest = pairs.last().map_or(0.0, |pair| pair.frequency);
    // From the largest on: a frequency of zero takes a direction that the others leave.
    for at in (0..m).rev() {
        let frequency = pairs[at].frequency;
        let odd = if frequency > 1e-12 * largest {
            pairs[at].odd.iter().map(|x| x / frequency).collect()
        } else {
            let rest = |place: usize| {
                let mut x: Vec<f64> = (0..m).map(|i| f64::from(i == place)).collect();
                for other in &pairs[at + 1..] {
                    let along = dot(&x, &other.odd);
                    x.iter_mut().zip(&other.odd).for_each(|(x, o)| *x -= along * o);
                }
                let norm = dot(&x, &x).sqrt();
                x.iter_mut().for_each(|x| *x /= norm);
                (norm, x)
            };
            let left = (0..m).map(rest).max_by(|x, y| x.0.total_cmp(&y.0));
            left.map_or_else(Vec::new, |(_, x)| x)
        };
        pairs[at].odd = odd;
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    /// b · (z + 1 - A)⁻¹ b of the real system, by elimination.
    fn dense(RealSystem { a, b, .. }: &RealSystem, z: f64) -> f64 {
        let n = b.len();
        let mut rows = matrix(n, |i, j| if i == j { z - a[i][j] } else { -a[i][j] });
        let mut x = b.clone();
        for i in 0..n {
            let pivot = (i..n).max_by(|&j, &k| rows[j][i].abs().total_cmp(&rows[k][i].abs())).unwrap();
            rows.swap(i, pivot);
            x.swap(i, pivot);
            for j in (0..n).filter(|j| *j != i) {
                let by = rows[j][i] / rows[i][i];
                let pivot = rows[i].clone();
                rows[j].iter_mut().zip(&pivot).for_each(|(x, pivot)| *x -= by * pivot);
                x[j] -= by * x[i];
            }
        }
        (0..n).map(|i| b[i] * x[i] / rows[i][i]).sum()
    }

    /// The same in the eigenbasis, by the Woodbury identity; all sums are twice their real parts.
    fn by_pairs(system: &NormalPlusLowRank, z: f64) -> f64 {
        let vectors: Vec<&Vec<ComplexNumber>> = std::iter::once(&system.b).chain(&system.p).collect();
        let sum = |x: &[ComplexNumber], y: &[ComplexNumber]| -> f64 {
            let terms = system.lambda.iter().zip(x).zip(y).map(|((lambda, x), y)| {
                let (re, im) = (z - lambda[0], -lambda[1]);
                let v = [x[0] * y[0] + x[1] * y[1], x[0] * y[1] - x[1] * y[0]];
                2.0 * (v[0] * re + v[1] * im) / (re * re + im * im)
            });
            terms.sum()
        };
        let mut r: Vec<Vec<f64>> = vectors.iter().map(|x| vectors.iter().map(|y| sum(x, y)).collect()).collect();
        for last in (1..r.len()).rev() {
            for i in 0..last {
                for j in 0..last {
                    r[i][j] -= r[i][last] * r[last][j] / (1.0 + r[last][last]);
                }
            }
        }
        r[0][0]
    }

    /// The transfer functions do not depend on the basis.
    #[test]
    fn the_eigenbasis_holds_the_same_system() {
        for measure in [Hippo::Legs, Hippo::Legt, Hippo::Fourier] {
            for n in [2, 4, 6, 16, 64] {
                let found = measure.in_eigenbasis(n);
                assert_eq!((found.p.len(), found.lambda.len()), (measure.rank(), n / 2));
                for z in [0.3, 1.0, 20.0] {
                    let (wanted, got) = (dense(&measure.system(n), z), by_pairs(&found, z));
                    // Real parts of 0 become LEAST_DECAY.
                    let limit = if measure == Hippo::Legs { 1e-11 } else { 1e-3 };
                    assert!((wanted - got).abs() < limit * wanted.abs(), "{n} {z}: {wanted} and {got}");
                }
            }
        }
    }

    /// The normal part of LegS has eigenvalues -1/2 ± iω (Gu et al. 2022, S4D: the largest is near n²/π).
    #[test]
    fn frequencies_of_legs_grow_with_the_square_of_n() {
        let found = Hippo::Legs.in_eigenbasis(256);
        let largest = found.lambda.last().unwrap();
        assert!((largest[0] + 0.5).abs() < 1e-9);
        let expected = 256f64.powi(2) / std::f64::consts::PI;
        assert!((largest[1] / expected - 1.0).abs() < 0.1, "{}", largest[1]);
    }
}
