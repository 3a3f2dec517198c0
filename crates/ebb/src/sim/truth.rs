//! What only the twin knows of a control period, as columns of the time series: the power of what
//! has no meter, and the truth behind the sensors.

use ebb_policy::{Aggregation, Domain, Topology, Unit};
use ebb_record::Column;
use ebb_record::column::Row;
use ebb_twin::Sample;
use ebb_twin::hdd::Wear;

/// The columns that the twin adds, in the order of [`fill`].
pub fn columns(topology: &Topology) -> Vec<Column> {
    let watts = |name, text| Column::of_server(name, Unit::Watts, text);
    let mut columns = vec![
        watts("true_power", "Of the whole server in this period, whatever its meter tells."),
        watts("memory_power", "Of the memory."),
        watts("nic_power", "Of the network adapters."),
        watts("other_power", "Of the rest of the board."),
        watts("psu_loss", "Lost in the power supplies."),
    ];
    if topology.sockets == 0 {
        return columns;
    }
    let (domain, aggregation) = (Domain::Socket, Aggregation::Max);
    let die = Row { unit: Unit::Celsius, domain, aggregation, text: "Of the die itself." };
    let text = "Whether the hardware slows the socket down from now on.";
    let throttled = Row { unit: Unit::Flag, text, ..die };
    for part in (0..topology.sockets).filter_map(|socket| domain.part(socket)) {
        columns.push(Column::of_part(&part, "die", &die));
        columns.push(Column::of_part(&part, "throttled", &throttled));
    }
    let of = Column::of_server;
    columns.extend([
        watts("leakage", "Leakage, part of the processors' power."),
        of("vibration", Unit::Share, "Relative amplitude of vibration."),
        of("exhaust", Unit::Celsius, "Air that leaves the server."),
        of("revolutions_lost", Unit::Count, "By all disks to vibration, in the period."),
        of("vibration_loss", Unit::Share, "Share of the disks' time that vibration cost."),
    ]);
    columns
}

/// The values of one period, in the order of [`columns`]; `wear` is this period's.
pub fn fill(row: &mut Vec<f64>, sample: &Sample<'_>, wear: &Wear) {
    let seconds = sample.length.seconds();
    let energy = &sample.energy;
    let parts = [energy.total(), energy.memory, energy.nic, energy.other, energy.psu_loss];
    row.clear();
    row.extend(parts.map(|joules| joules.0 / seconds));
    let Some(weather) = sample.weather else { return };
    for (die, throttled) in weather.sockets.iter().zip(&weather.throttled) {
        row.extend([die.0, f64::from(u8::from(*throttled))]);
    }
    row.extend([weather.leakage.0 / seconds, weather.vibration, weather.exhaust.0]);
    row.extend([wear.retries as f64, wear.loss().unwrap_or(f64::NAN)]);
}
