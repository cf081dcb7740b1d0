//! Facts about the machine of a run, from the kernel and from the operator.
//!
//! Price and name come from a machine profile, a TOML file (`name = "Pi Zero"`, `price = 14.40`, `currency
//! = "GBP"`). The temperature is the processor's if a sensor is labelled accordingly, otherwise the highest
//! of all sensors. Virtual machines have no sensor.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::process;
use crate::result::{Machine, Price};

/// Machine profile written by the operator.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Profile {
    /// Name of the machine in tables, or `None` for the host name.
    pub name: Option<String>,
    /// Price of the machine.
    pub price: Option<Price>,
}

/// Error of an invalid machine profile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {problem}", path.display())]
pub struct ProfileError {
    path: PathBuf,
    problem: String,
}

/// File format of a profile.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    name: Option<String>,
    price: Option<toml::Value>,
    currency: Option<String>,
}

impl Written {
    /// Returns the price: a number with a separate currency, or a table with both.
    fn price(&self) -> Result<Option<Price>, String> {
        let amount = match &self.price {
            None if self.currency.is_none() => return Ok(None),
            None => return Err(format!("currency without a price: {PRICE}")),
            Some(toml::Value::Integer(whole)) => *whole as f64,
            Some(toml::Value::Float(amount)) => *amount,
            Some(table @ toml::Value::Table(_)) if self.currency.is_none() => {
                let price: Result<Price, _> = table.clone().try_into();
                let price =
                    price.map_err(|error| format!("price: {}: {PRICE}", error.message()))?;
                return sound(price).map(Some);
            }
            Some(other) => return Err(format!("price = {other}: {PRICE}")),
        };
        let Some(currency) = self.currency.clone() else {
            return Err(format!("price = {amount} has no currency: {PRICE}"));
        };
        sound(Price { amount, currency }).map(Some)
    }
}

fn sound(price: Price) -> Result<Price, String> {
    if price.amount.is_finite() && price.amount > 0.0 {
        Ok(price)
    } else {
        Err(format!(
            "the price is {}, but must be greater than zero",
            price.amount
        ))
    }
}

const PRICE: &str = "write price = 14.40 and below it currency = \"GBP\"";

impl Profile {
    /// Reads a profile.
    pub fn load(path: &Path) -> Result<Profile, ProfileError> {
        let wrong = |problem: String| ProfileError {
            path: path.to_owned(),
            problem,
        };
        let text = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        let written: Written = toml::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        let price = written.price().map_err(wrong)?;
        Ok(Profile {
            name: written.name,
            price,
        })
    }
}

impl Machine {
    /// Collects the facts of the current machine.
    pub fn of_this_run(profile: &Profile) -> Machine {
        let uname = rustix::system::uname();
        let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
        let cpuinfo = read("/proc/cpuinfo").unwrap_or_default();
        let memory = read("/proc/meminfo").and_then(|text| memory_bytes(&text));
        Machine {
            name: profile
                .name
                .clone()
                .unwrap_or_else(|| text(uname.nodename())),
            cpu: processor(&cpuinfo, read("/proc/device-tree/model").as_deref()),
            cpus: process::cpus().len().try_into().unwrap_or(u32::MAX),
            architecture: text(uname.machine()),
            memory_bytes: memory.unwrap_or(0),
            kernel: text(uname.release()),
            system: read("/etc/os-release")
                .and_then(|text| system_name(&text))
                .unwrap_or_default(),
            governor: read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            congestion_control: read("/proc/sys/net/ipv4/tcp_congestion_control"),
            price: profile.price.clone(),
            tick_seconds: 1.0 / rustix::param::clock_ticks_per_second() as f64,
        }
    }
}

/// Returns the processor's temperature in degrees Celsius, or `None` without a sensor.
pub(crate) fn temperature_celsius() -> Option<f64> {
    temperature_below(Path::new("/sys/class"))
}

/// Reads the sensors: `class/thermal/thermal_zone*` has a type and millidegrees, `class/hwmon/hwmon*` has a
/// name and several inputs.
fn temperature_below(class: &Path) -> Option<f64> {
    let mut seen = Vec::new();
    for zone in folders(&class.join("thermal")) {
        seen.extend(sensor(&zone.join("type"), &zone.join("temp")));
    }
    for monitor in folders(&class.join("hwmon")) {
        for input in folders(&monitor) {
            let name = input.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with("temp") && name.ends_with("_input") {
                seen.extend(sensor(&monitor.join("name"), &input));
            }
        }
    }
    let hottest = |of: &mut dyn Iterator<Item = &(bool, f64)>| {
        of.map(|(_, celsius)| *celsius).max_by(f64::total_cmp)
    };
    hottest(&mut seen.iter().filter(|(processor, _)| *processor))
        .or_else(|| hottest(&mut seen.iter()))
}

/// Returns whether a sensor belongs to the processor, and degrees Celsius.
fn sensor(kind: &Path, millidegrees: &Path) -> Option<(bool, f64)> {
    let kind = fs::read_to_string(kind)
        .unwrap_or_default()
        .to_ascii_lowercase();
    let celsius = fs::read_to_string(millidegrees)
        .ok()?
        .trim()
        .parse::<f64>()
        .ok()?
        / 1000.0;
    let processor = ["cpu", "pkg_temp", "coretemp", "k10temp", "soc"];
    // Missing sensors read as the lowest or highest representable value.
    let is_sane = (-40.0..=150.0).contains(&celsius);
    is_sane.then_some((processor.iter().any(|known| kind.contains(known)), celsius))
}

fn folders(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect()
}

/// Reads a file without surrounding whitespace and NUL bytes.
fn read(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
    (!text.is_empty()).then(|| text.to_owned())
}

/// Returns the processor's name: the model on x86, the board (device tree) and the core on ARM.
fn processor(cpuinfo: &str, board: Option<&str>) -> String {
    let field = |name: &str| {
        cpuinfo.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == name).then(|| value.trim().to_owned())
        })
    };
    let model = field("model name")
        .or_else(|| field("Model"))
        .or_else(|| field("Processor"));
    match (board, model) {
        (Some(board), Some(model)) if !board.contains(&model) => format!("{board}, {model}"),
        (Some(board), _) => board.to_owned(),
        (None, model) => model.unwrap_or_default(),
    }
}

fn memory_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(
        line.trim()
            .trim_end_matches("kB")
            .trim()
            .parse::<u64>()
            .ok()?
            * 1024,
    )
}

fn system_name(os_release: &str) -> Option<String> {
    let line = os_release
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(line.trim_matches('"').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_facts_of_this_machine_are_complete() {
        let machine = Machine::of_this_run(&Profile::default());
        assert!(machine.cpus >= 1 && machine.memory_bytes > 1 << 20);
        assert!(!machine.kernel.is_empty() && !machine.architecture.is_empty());
        assert!(machine.tick_seconds > 0.0 && machine.tick_seconds < 0.1);
        assert_eq!(machine.price, None);
    }

    #[test]
    fn processors_are_named_on_each_architecture() {
        let intel = "processor\t: 0\nmodel name\t: Intel(R) Xeon(R)\n\nprocessor\t: 1\n";
        assert_eq!(processor(intel, None), "Intel(R) Xeon(R)");
        let zero = "processor\t: 0\nmodel name\t: ARMv6-compatible processor rev 7 (v6l)\n";
        assert_eq!(
            processor(zero, Some("Raspberry Pi Zero W Rev 1.1")),
            "Raspberry Pi Zero W Rev 1.1, ARMv6-compatible processor rev 7 (v6l)"
        );
        assert_eq!(
            processor("Model\t: Raspberry Pi 4", Some("Raspberry Pi 4 B")),
            "Raspberry Pi 4 B"
        );
        assert_eq!(processor("", None), "");
    }

    #[test]
    fn a_profile_has_a_price_with_its_currency() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("zero.toml");
        let load = |text: &str| {
            fs::write(&file, text).expect("a file");
            Profile::load(&file).map_err(|error| error.to_string())
        };
        let pounds = Price {
            amount: 14.4,
            currency: "GBP".to_owned(),
        };
        for text in [
            "name = \"Pi Zero\"\nprice = 14.40\ncurrency = \"GBP\"\n",
            "name = \"Pi Zero\"\nprice = { amount = 14.40, currency = \"GBP\" }\n",
        ] {
            let profile = load(text).expect("a profile");
            assert_eq!(profile.name.as_deref(), Some("Pi Zero"));
            assert_eq!(profile.price, Some(pounds.clone()), "{text}");
        }
        assert_eq!(load("").expect("a profile"), Profile::default());
        for (text, said) in [
            (
                "price = 14.40",
                "price = 14.4 has no currency: write price = 14.40 and below it",
            ),
            ("price = \"14\"", "currency = \"GBP\""),
            ("price = { amount = 3 }", "missing field `currency`: write"),
            ("currency = \"GBP\"", "currency without a price"),
            (
                "price = -1\ncurrency = \"GBP\"",
                "the price is -1, but must be greater than zero",
            ),
            ("prize = 1", "unknown field `prize`"),
        ] {
            let error = load(text).expect_err(text);
            assert!(
                error.contains("zero.toml: ") && error.contains(said),
                "{error}"
            );
        }
    }

    #[test]
    fn memory_and_system_name_are_parsed() {
        assert_eq!(
            memory_bytes("MemTotal:  512 kB\nMemFree: 1 kB\n"),
            Some(512 * 1024)
        );
        let debian = "NAME=\"Debian\"\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n";
        assert_eq!(
            system_name(debian).as_deref(),
            Some("Debian GNU/Linux 12 (bookworm)")
        );
    }

    #[test]
    fn the_processor_sensor_takes_precedence_over_a_hotter_sensor() {
        let class = tempfile::tempdir().expect("a folder");
        let write = |path: &str, text: &str| {
            let path = class.path().join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(path, text).expect("a file");
        };
        assert_eq!(temperature_below(class.path()), None);
        write("hwmon/hwmon0/name", "nvme\n");
        write("hwmon/hwmon0/temp1_input", "71000\n");
        assert_eq!(temperature_below(class.path()), Some(71.0));
        write("thermal/thermal_zone0/type", "cpu-thermal\n");
        write("thermal/thermal_zone0/temp", "48312\n");
        write("thermal/thermal_zone1/type", "cpu-thermal\n");
        write("thermal/thermal_zone1/temp", "999999\n");
        assert_eq!(temperature_below(class.path()), Some(48.312));
    }

    #[test]
    fn a_profile_sets_name_and_price() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("machine.toml");
        let load = |text: &str| {
            fs::write(&file, text).expect("a file");
            Profile::load(&file)
        };
        let profile = load("name = \"Zero\"\nprice = { amount = 14.40, currency = \"GBP\" }\n");
        let profile = profile.expect("a sound profile");
        let machine = Machine::of_this_run(&profile);
        assert_eq!(machine.name, "Zero");
        assert_eq!(
            machine.price,
            Some(Price {
                amount: 14.40,
                currency: "GBP".into()
            })
        );
        for wrong in [
            "colour = 1",
            "price = { amount = 0, currency = \"GBP\" }",
            "name =",
        ] {
            let error = load(wrong).expect_err("an unsound profile").to_string();
            assert!(error.contains("machine.toml"), "{error}");
        }
    }
}
