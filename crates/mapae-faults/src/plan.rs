//! What was asked for on the command line.

use std::path::PathBuf;

use crate::beside::Beside;
use crate::cell::{Cell, Store};

pub(crate) const HELP: &str = "\
Usage: cargo xtask faults [OPTIONS]

  --short          every cell once and 40 random kills (the default)
  --long           every cell ten times and 1,000 random kills; goes on where it was stopped
  --seed N         the first seed of the random kills; without it a long run takes one from the clock
  --only CELL      one cell, such as work/settle.asked/postgres/freeze, or all that begin so
  --random N       one round of N random kills with the seed given by --seed, nothing else
  --store NAME     sqlite or postgres; both where it is not given
  --mutants        break each promise once and demand that it is noticed
  --mutant NAME    break this one in all that is run
  --beside N       cells at a time [default: 6]
  --list           the cells
";

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum What {
    /// Every cell so many times, then so many random kills.
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
        let short = What::All { times: 1, kills: 40, resumes: false };
        let mut plan = Self { what: short, stores: Store::ALL.to_vec(), seed: None, beside: 6, mutant: None };
        let mut only = None;
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} wants a value"));
            let number = |text: &String| text.parse::<u64>().map_err(|_| format!("{text} is no number"));
            match word.as_str() {
                "--short" => {}
                "--long" => plan.what = What::All { times: 10, kills: 1_000, resumes: true },
                "--seed" => plan.seed = Some(number(value()?)?),
                "--only" => only = Some(value()?.clone()),
                "--random" => plan.what = What::Random(number(value()?)? as usize),
                "--mutants" => plan.what = What::Mutants,
                "--mutant" => plan.mutant = Some(value()?.clone()),
                "--help" | "-h" => plan.what = What::Help,
                "--list" => plan.what = What::List,
                "--beside" => plan.beside = (number(value()?)? as usize).clamp(1, 64),
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
        if let Some(start) = only {
            let cells = Cell::all(&plan.stores);
            let found: Vec<Cell> =
                cells.into_iter().filter(|cell| cell.to_string().starts_with(&start)).collect();
            let beside = Beside::all(&plan.stores);
            let beside: Vec<Beside> =
                beside.into_iter().filter(|one| one.to_string().starts_with(&start)).collect();
            if found.is_empty() && beside.is_empty() {
                return Err(format!("no cell begins with {start}; --list shows them"));
            }
            plan.what = What::Only(found, beside);
        }
        Ok(plan)
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
        assert_eq!(read("").unwrap().what, What::All { times: 1, kills: 40, resumes: false });
        let plan = read("--only work/settle.asked --store postgres").unwrap();
        let What::Only(cells, _) = plan.what else { panic!("{plan:?}") };
        assert_eq!(cells.len(), 2, "{cells:?}");
        let plan = read("--random 7 --seed 5 --beside 2").unwrap();
        assert_eq!((plan.what, plan.seed, plan.beside), (What::Random(7), Some(5), 2));
        for bad in ["--only nothing", "--store oracle", "--seed x", "--seed", "--loud"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
