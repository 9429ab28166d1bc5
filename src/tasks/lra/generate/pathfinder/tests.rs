use super::*;
#[test]
fn dump() {
    let began = std::time::Instant::now();
    let pictures = pictures(0, 0..2000);
    println!("{:?}", began.elapsed());
    let bytes: Vec<u8> = pictures.iter().flat_map(|p| p.pixels).collect();
    std::fs::write("/tmp/gen_ours.bin", bytes).unwrap();
    let labels: Vec<u8> = pictures.iter().map(|p| p.label).collect();
    std::fs::write("/tmp/gen_labels.bin", labels).unwrap();
    let mut text = String::new();
    for y in -4..=4 {
        for x in -4..=4 {
            let mut cells = [0; 81];
            for ((dy, dx), l) in &stencil::End(y, x).stencil().line {
                cells[((dy + 4) * 9 + dx + 4) as usize] = *l;
            }
            text += &format!("{y},{x}: {cells:?}\n");
        }
    }
    std::fs::write("/tmp/gen_stencils.txt", text).unwrap();
}
