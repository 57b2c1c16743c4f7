//! What was asked for on the command line.

use std::path::PathBuf;

use crate::beside::Beside;
use crate::broker::Broker;
use crate::cell::{Cell, Pair, Store};

pub(crate) const HELP: &str = "\
Usage: cargo xtask faults [OPTIONS]

  --short          every cell once and 20 random kills on each store without a broker, and with each broker
                   the cells in which it can disagree with the database (the default)
  --long           every cell ten times and 500 random kills, on each store with each broker and without; goes
                   on where it was stopped
  --seed N         the first seed of the random kills; without it a long run takes one from the clock
  --only CELL      one cell, such as work/settle.asked/postgres+valkey/freeze, or all that begin so
  --random N       one round of N random kills with the seed given by --seed, nothing else
  --store NAME     sqlite or postgres; both where it is not given
  --broker NAME    embedded, valkey, redis, rabbitmq or kafka, with all its cells; or all of them. Where it is not
                   given, cells and kills that are named are those of embedded
  --mutants        break each promise once and demand that it is noticed
  --mutant NAME    break this one in all that is run
  --beside N       cells at a time [default: 6]
  --list           the cells
";

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum What {
    /// Every cell so many times, and so many random kills on each pair.
    All {
        times: usize,
        kills: usize,
        resumes: bool,
    },
    Only(Vec<Cell>, Vec<Beside>),
    Random(usize),
    Mutants,
    List,
    Help,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    pub(crate) what: What,
    pub(crate) stores: Vec<Store>,
    /// Of whose cells each is played.
    pub(crate) whole: Vec<Broker>,
    /// Of whose cells only those are played in which broker and database can disagree.
    pub(crate) sampled: Vec<Broker>,
    pub(crate) seed: Option<u64>,
    pub(crate) beside: usize,
    /// Whose promise is broken.
    pub(crate) mutant: Option<String>,
}

/// The program to test, and where a long run writes down how far it has come.
pub(crate) fn mapae() -> Option<PathBuf> {
    let beside = std::env::current_exe().ok()?;
    Some(beside.parent()?.join("mapae")).filter(|program| program.exists())
}

impl Plan {
    pub(crate) fn read(words: &[String]) -> Result<Self, String> {
        let mut plan = Self {
            what: What::All { times: 1, kills: 20, resumes: false },
            stores: Store::ALL.to_vec(),
            whole: vec![Broker::Embedded],
            sampled: Vec::new(),
            seed: None,
            beside: 6,
            mutant: None,
        };
        let (mut only, mut broker) = (None, None);
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} wants a value"));
            let number = |text: &String| text.parse::<u64>().map_err(|_| format!("{text} is no number"));
            match word.as_str() {
                "--short" => {}
                "--long" => plan.what = What::All { times: 10, kills: 500, resumes: true },
                "--seed" => plan.seed = Some(number(value()?)?),
                "--only" => only = Some(value()?.clone()),
                "--random" => plan.what = What::Random(number(value()?)? as usize),
                "--mutants" => plan.what = What::Mutants,
                "--mutant" => plan.mutant = Some(value()?.clone()),
                "--help" | "-h" => plan.what = What::Help,
                "--list" => plan.what = What::List,
                "--beside" => plan.beside = (number(value()?)? as usize).clamp(1, 64),
                "--broker" => broker = Some(value()?.clone()),
                "--store" => {
                    let name = value()?;
                    plan.stores.retain(|store| store.name() == name);
                }
                other => return Err(format!("{other} is not known")),
            }
        }
        if plan.stores.is_empty() {
            return Err("the stores are sqlite and postgres".into());
        }
        plan.choose(broker.as_deref(), only.as_deref())?;
        if let Some(start) = only {
            plan.only(&start)?;
        }
        Ok(plan)
    }

    fn choose(&mut self, broker: Option<&str>, only: Option<&str>) -> Result<(), String> {
        let all = Broker::ALL.to_vec();
        match (broker, only, &self.what) {
            (Some("all"), ..) => self.whole = all,
            (Some(name), ..) => {
                self.whole = all.into_iter().filter(|broker| broker.name() == name).collect();
                if self.whole.is_empty() {
                    return Err("the brokers are embedded, valkey, redis, rabbitmq, kafka, and all".into());
                }
            }
            // A cell's name names its broker.
            (None, Some(start), _) if start.contains('+') => self.whole = all,
            (None, Some(_), _) => {}
            (None, None, What::All { resumes: true, .. } | What::List) => self.whole = all,
            (None, None, What::All { .. } | What::Mutants) => {
                self.sampled = all.into_iter().filter(|broker| broker.delivers()).collect();
            }
            (None, None, _) => {}
        }
        Ok(())
    }

    fn only(&mut self, start: &str) -> Result<(), String> {
        let mut cells = Cell::all(&self.pairs());
        cells.retain(|cell| cell.to_string().starts_with(start));
        let mut beside = self.beside_all();
        beside.retain(|one| one.to_string().starts_with(start));
        if cells.is_empty() && beside.is_empty() {
            return Err(format!("no cell begins with {start}; --list shows them"));
        }
        let used = |broker: &Broker| {
            cells.iter().any(|cell| cell.broker == *broker)
                || beside.iter().any(|one| one.broker() == *broker)
        };
        self.whole.retain(used);
        self.what = What::Only(cells, beside);
        Ok(())
    }

    /// Whose cells are all played.
    pub(crate) fn pairs(&self) -> Vec<Pair> {
        Pair::all(&self.stores, &self.whole)
    }

    /// All that is to be played, once.
    pub(crate) fn cells(&self) -> Vec<Cell> {
        let mut cells = Cell::all(&self.pairs());
        cells.extend(Cell::sample(&Pair::all(&self.stores, &self.sampled)));
        cells
    }

    /// What is to fail beside the processes, once.
    pub(crate) fn beside_all(&self) -> Vec<Beside> {
        Beside::all(&self.pairs())
    }

    /// Variables that have to tell of a server.
    pub(crate) fn variables(&self) -> Vec<&'static str> {
        let postgres = self.stores.contains(&Store::Postgres).then_some("MAPAE_TEST_POSTGRES");
        let brokers = self.whole.iter().chain(&self.sampled).filter_map(|broker| broker.variable());
        postgres.into_iter().chain(brokers).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Plan, String> {
        Plan::read(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn words_say_what_to_run() {
        assert_eq!(read("").unwrap().what, What::All { times: 1, kills: 20, resumes: false });
        let plan = read("--only work/settle.asked --store postgres").unwrap();
        let What::Only(cells, _) = plan.what else { panic!("{plan:?}") };
        assert_eq!(cells.len(), 2, "{cells:?}");
        let plan = read("--random 7 --seed 5 --beside 2").unwrap();
        assert_eq!((plan.what, plan.seed, plan.beside), (What::Random(7), Some(5), 2));
        for bad in ["--only nothing", "--store oracle", "--broker nats", "--seed x", "--seed", "--loud"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_broker_is_played_wholly_where_it_is_named_and_in_part_where_none_is() {
        let short = read("").unwrap();
        assert_eq!((short.whole, short.sampled.len()), (vec![Broker::Embedded], 4));
        let named = read("--broker kafka --store sqlite").unwrap();
        assert_eq!((&named.whole, named.sampled.len()), (&vec![Broker::Kafka], 0));
        assert_eq!(named.variables(), ["MAPAE_TEST_KAFKA"]);
        assert_eq!(read("--long").unwrap().whole.len(), Broker::ALL.len());
        assert_eq!(read("--random 3").unwrap().whole, [Broker::Embedded]);
        let only = read("--only work/settle.asked/postgres+rabbitmq").unwrap();
        assert_eq!(only.whole, [Broker::RabbitMq]);
        let What::Only(cells, beside) = only.what else { panic!() };
        assert_eq!((cells.len(), beside.len()), (2, 0));
        let wiped = read("--only beside/wiped/sqlite+kafka").unwrap();
        assert_eq!((wiped.whole, wiped.stores.len()), (vec![Broker::Kafka], 2));
    }
}
