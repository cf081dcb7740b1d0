//! Facts about the process and the machine from the files of the kernel in /proc and /sys.

use rustix::process::{Resource, getrlimit};
use std::fs;
use std::path::Path;

/// Resources that the process uses.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct ProcessFacts {
    /// Processor time of all threads in hundredths of a second.
    pub cpu_centiseconds: u64,
    /// Resident memory in bytes.
    pub resident_bytes: u64,
    /// Virtual memory in bytes.
    pub virtual_bytes: u64,
    /// Open descriptors.
    pub descriptors: u64,
    /// Largest number of open descriptors.
    pub descriptors_max: u64,
}

/// Temperature and throttling of the machine. A machine without a sensor has no entry.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct MachineFacts {
    /// Temperature of each thermal zone: name of the zone, type of the sensor, thousandths of a degree Celsius.
    pub temperatures: Vec<(String, String, i64)>,
    /// Flags of a Raspberry Pi's firmware: bits 0 to 3 at present, bits 16 to 19 since the start.
    pub raspberry_flags: Option<u32>,
    /// Number of times that the processors reached their limit of temperature.
    pub throttle_events: Option<u64>,
}

/// Conditions of a Raspberry Pi's firmware in the order of the bits.
pub const RASPBERRY_CONDITIONS: [&str; 4] = [
    "under_voltage",
    "frequency_capped",
    "throttled",
    "soft_temperature_limit",
];

/// Largest number of thermal zones, and of processors with a counter of throttling, read from /sys.
const SENSORS_MAX: usize = 64;
/// File with the flags of a Raspberry Pi's firmware.
const RASPBERRY_FLAGS: &str = "sys/devices/platform/soc/soc:firmware/get_throttled";

/// Ticks of a second in which the kernel tells processor times (USER_HZ, time(7)).
const TICKS_PER_SECOND: u64 = 100;

/// Returns the resident memory of the process in bytes.
pub fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    memory_bytes(&status, "VmRSS:")
}

/// Returns the memory in a line of /proc/PID/status, which tells KiB.
fn memory_bytes(status: &str, name: &str) -> u64 {
    let mut values = status.lines().filter_map(|line| line.strip_prefix(name));
    let kibibytes = values
        .next()
        .and_then(|rest| rest.split_whitespace().next());
    kibibytes
        .and_then(|number| number.parse().ok())
        .unwrap_or(0)
        * 1_024
}

impl ProcessFacts {
    /// Reads the facts of the calling process. A file that can't be read counts as zeros.
    pub fn read() -> ProcessFacts {
        let text = |name| fs::read_to_string(name).unwrap_or_default();
        let status = text("/proc/self/status");
        let descriptors = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
        ProcessFacts {
            // The listing holds a descriptor of the folder.
            descriptors: (descriptors as u64).saturating_sub(1),
            descriptors_max: getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX),
            cpu_centiseconds: cpu_ticks(&text("/proc/self/stat")) * 100 / TICKS_PER_SECOND,
            resident_bytes: memory_bytes(&status, "VmRSS:"),
            virtual_bytes: memory_bytes(&status, "VmSize:"),
        }
    }
}

/// Returns the ticks of user time and system time in /proc/PID/stat: the fields 14 and 15 (proc_pid_stat(5)). The
/// name of the program, field 2, may contain spaces and brackets.
fn cpu_ticks(stat: &str) -> u64 {
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let times = rest.split_whitespace().skip(14 - 3).take(2);
    times.filter_map(|time| time.parse::<u64>().ok()).sum()
}

impl MachineFacts {
    /// Reads the facts of the machine.
    pub fn read() -> MachineFacts {
        MachineFacts::below(Path::new("/"))
    }

    fn below(root: &Path) -> MachineFacts {
        let text = |path: &Path| {
            let text = fs::read_to_string(path).unwrap_or_default();
            text.trim().to_owned()
        };
        let zones = children(&root.join("sys/class/thermal"), "thermal_zone");
        let zones = zones.iter().filter_map(|zone| {
            let millidegrees = text(&zone.join("temp")).parse().ok()?;
            let name = zone.file_name()?.to_string_lossy().into_owned();
            Some((name, text(&zone.join("type")), millidegrees))
        });
        let flags = text(&root.join(RASPBERRY_FLAGS));
        let processors = children(&root.join("sys/devices/system/cpu"), "cpu");
        let counts = processors.iter().filter_map(|processor| {
            let count = processor.join("thermal_throttle/core_throttle_count");
            text(&count).parse::<u64>().ok()
        });
        MachineFacts {
            temperatures: zones.collect(),
            raspberry_flags: u32::from_str_radix(flags.trim_start_matches("0x"), 16).ok(),
            throttle_events: counts.reduce(|sum, count| sum + count),
        }
    }
}

/// Returns the paths of the entries of a folder with the names `prefix` and a number, in the order of the numbers.
fn children(folder: &Path, prefix: &str) -> Vec<std::path::PathBuf> {
    let names = (0..SENSORS_MAX).map(|number| folder.join(format!("{prefix}{number}")));
    names.take_while(|path| path.exists()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_uses_resources() {
        let facts = ProcessFacts::read();
        assert!(facts.resident_bytes > 100_000 && facts.virtual_bytes > facts.resident_bytes);
        assert!(facts.descriptors >= 3 && facts.descriptors <= facts.descriptors_max);
        assert!(resident_bytes() > 100_000);
    }

    #[test]
    fn the_name_of_a_program_may_contain_brackets() {
        let numbers: Vec<String> = (4..=52).map(|number| number.to_string()).collect();
        let stat = format!("12 (a) b (c) S {}\n", numbers.join(" "));
        assert_eq!(cpu_ticks(&stat), 14 + 15);
        assert_eq!(cpu_ticks("12 (a"), 0);
    }

    #[test]
    fn sensors_of_a_machine() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(MachineFacts::below(root.path()), MachineFacts::default());
        for (path, text) in [
            ("sys/class/thermal/thermal_zone0/temp", "48312\n"),
            ("sys/class/thermal/thermal_zone0/type", "cpu-thermal\n"),
            ("sys/class/thermal/thermal_zone1/temp", "broken\n"),
            ("sys/class/thermal/cooling_device0/type", "fan\n"),
            (RASPBERRY_FLAGS, "50005\n"),
            (
                "sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count",
                "2\n",
            ),
            (
                "sys/devices/system/cpu/cpu1/thermal_throttle/core_throttle_count",
                "3\n",
            ),
        ] {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let facts = MachineFacts::below(root.path());
        let zone = ("thermal_zone0".to_owned(), "cpu-thermal".to_owned(), 48_312);
        assert_eq!(facts.temperatures, [zone]);
        assert_eq!(facts.raspberry_flags, Some(0x50005));
        assert_eq!(facts.throttle_events, Some(5));
    }
}
