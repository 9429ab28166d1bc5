//! Many simulated runs in one process.

use super::*;
use std::sync::Mutex;

/// Performs the action that a run's config names.
#[derive(Clone, Default)]
struct Pretends {
    closed: Arc<Mutex<Vec<String>>>,
    /// Reason why no device can be opened.
    lost: Option<&'static str>,
}

impl Trains for Pretends {
    type Device = RefCell<String>;

    fn open(&self) -> Result<Self::Device> {
        match self.lost {
            Some("a panic") => panic!("no way"),
            Some(why) => Err(Error::usage(why)),
            None => Ok(RefCell::default()),
        }
    }

    fn train(&self, device: &Self::Device, asked: &TrainRequest, stop: &AtomicBool) -> Result<u8> {
        device.replace(asked.config.clone());
        match asked.config.as_str() {
            "fail" => return Err(Error::missing("no data")),
            "panic" => panic!("no way"),
            "break" => return Ok(exit::FAILED),
            "wait" => {
                while !is_set(stop) {
                    thread::sleep(Duration::from_millis(1));
                }
                return Err(Error::Stopped);
            }
            _ => {}
        }
        Ok(exit::DONE)
    }

    fn close(&self, device: Self::Device) -> Option<String> {
        let did = device.into_inner();
        let broken = (did == "break").then(|| "an illegal address".to_owned());
        self.closed.lock().unwrap().push(did);
        broken
    }
}

fn train(run: &str) -> HostEvent {
    let asked = TrainRequest { run: format!("the {run}"), config: run.to_owned(), micro_batch: None };
    line(&Request::Train(asked))
}

fn line(request: &Request) -> HostEvent {
    HostEvent::Line(serde_json::to_string(request).unwrap())
}

/// Serves `first`, and the requests that `then` returns after each end; returns the ends, the exit code, and the closed
/// devices.
fn served(first: Vec<HostEvent>, then: impl FnMut(&Ended) -> Vec<HostEvent>) -> (Vec<Ended>, u8, Vec<String>) {
    served_by(Pretends::default(), first, then)
}

fn served_by(
    trains: Pretends,
    first: Vec<HostEvent>,
    mut then: impl FnMut(&Ended) -> Vec<HostEvent>,
) -> (Vec<Ended>, u8, Vec<String>) {
    let (sender, inbox) = mpsc::channel();
    let ask = sender.clone();
    first.into_iter().for_each(|heard| ask.send(heard).unwrap());
    let mut said = Vec::new();
    let closed = Arc::clone(&trains.closed);
    let mut say = |event: &Value| {
        let mut event = event.clone();
        assert_eq!(event["event"], "ended");
        event.as_object_mut().unwrap().remove("event");
        event.as_object_mut().unwrap().remove("schema");
        let ended: Ended = serde_json::from_value(event).unwrap();
        then(&ended).into_iter().for_each(|heard| ask.send(heard).unwrap());
        said.push(ended);
        Ok(())
    };
    let code = MainThread::new(trains, sender).serve(&inbox, &AtomicBool::new(false), &mut say).unwrap();
    said.sort_by(|a, b| a.run.cmp(&b.run));
    let mut closed = closed.lock().unwrap().clone();
    closed.sort();
    (said, code, closed)
}

#[test]
fn runs_end_one_by_one_whatever_becomes_of_the_others() {
    keep_words_of_panics();
    let runs = ["done", "fail", "panic", "wait"];
    let mut left = 3;
    let (said, code, closed) = served(runs.map(train).into(), |_| {
        left -= 1;
        Vec::from_iter((left == 0).then_some(HostEvent::StdinClosed))
    });
    assert_eq!(code, exit::DONE);
    assert_eq!(closed, runs);
    let ends = [0, 1, 2, 3].map(|i| (said[i].run.as_str(), said[i].code, said[i].last));
    let of = |run, code| (run, code, false);
    assert_eq!(
        ends,
        [
            of("the done", exit::DONE),
            of("the fail", exit::NO_DATA),
            of("the panic", exit::FAILED),
            of("the wait", exit::STOPPED),
        ]
    );
    assert_eq!(said[0].words, "");
    assert_eq!(said[1].words, "error: no data\n");
    let panic = &said[2].words;
    assert!(panic.starts_with("panicked at ") && panic.ends_with("\nno way\n"), "{panic}");
}

#[test]
fn one_run_is_stopped_and_the_others_go_on() {
    let stop = line(&Request::Stop("the wait".to_owned()));
    let (said, code, _) = served(vec![train("wait"), stop, train("done")], |ended| {
        Vec::from_iter((ended.run == "the wait").then_some(HostEvent::StdinClosed))
    });
    assert_eq!(code, exit::DONE);
    assert_eq!([said[0].code, said[1].code], [exit::DONE, exit::STOPPED]);
}

#[test]
fn a_line_that_is_no_request_ends_the_process_behind_its_checkpoints() {
    for line in ["nonsense", r#"{"train":{"run":"x"}}"#, r#"{"sing":"x"}"#, ""] {
        let lines = vec![train("wait"), HostEvent::Line(line.to_owned()), train("done")];
        let (said, code, _) = served(lines, |_| Vec::new());
        assert_eq!(code, exit::REFUSED, "{line}");
        assert_eq!(said.len(), 1);
        assert_eq!(said[0].code, exit::STOPPED);
    }
    let twice = vec![train("wait"), train("wait")];
    assert_eq!(served(twice, |_| Vec::new()).1, exit::REFUSED);
}

#[test]
fn a_device_that_failed_takes_no_more_runs() {
    let (said, code, closed) = served(vec![train("break")], |_| vec![train("done")]);
    assert_eq!(code, exit::FAILED);
    assert!(said.len() == 1 && said[0].last);
    assert_eq!(closed, ["break"]);
}

#[test]
fn a_process_that_gets_no_device_takes_no_more_runs() {
    for why in ["out of memory", "a panic"] {
        let trains = Pretends { lost: Some(why), ..Pretends::default() };
        let (said, code, closed) = served_by(trains, vec![train("done")], |_| vec![train("another")]);
        assert_eq!(code, exit::FAILED);
        assert!(said.len() == 1 && said[0].last && said[0].code != exit::DONE);
        assert!(closed.is_empty());
    }
}
