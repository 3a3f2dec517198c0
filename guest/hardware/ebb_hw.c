// SPDX-License-Identifier: GPL-2.0-only
/*
 * The power side of a server, for a guest that has none: frequencies (cpufreq), idle states
 * (cpuidle), energy counters and power limits (powercap), temperatures, fans and a meter (hwmon).
 * Other programs meet the kernel's own interfaces, under the names that an Intel server has.
 *
 * What would be measured is written to /dev/ebb-hw, a line "KEY VALUE" each; what was commanded is
 * read from there. The physics in between is a program's (crates/twin/examples/hardware.rs).
 *
 *   temp0, temp1    socket's temperature, m°C       inlet    air's temperature, m°C
 *   fan1 ... fan4   tachometer, rpm                 power    wall meter, µW
 *   auto1 ... auto4 duty by the board's own control, 0 to 255, where pwmN_enable is 2
 *   energy0/1       adds to a package's counter, µJ
 *   draw0/1         what it draws from now on, µW: the counter goes on by that
 *   clamp0/1        highest frequency of a socket's CPUs by its firmware, kHz; 0 for none
 *   chip0 ... chip3 the sockets' chips, the board's and the meter's: 0 unbinds its driver, 1 binds it
 *
 * "none" in place of a temperature or a speed: the sensor does not answer.
 *
 * The licence is the kernel's, not that of the rest of Ebb: all that this registers with is
 * exported to modules under the GPL only. Nothing of Ebb is linked with it.
 */
#include <linux/atomic.h>
#include <linux/cpu.h>
#include <linux/cpufreq.h>
#include <linux/cpuidle.h>
#include <linux/hwmon.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/platform_device.h>
#include <linux/powercap.h>
#include <linux/sched/idle.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/timekeeping.h>
#include <linux/uaccess.h>

#define SOCKETS 2
#define FANS 4
/* A sensor that does not answer. */
#define NONE INT_MIN
/* Where energy counters start again, µJ: after seconds, not after the minutes of a real one. */
#define RANGE 299999999ULL
/* Where sockets slow themselves down, m°C. */
#define CRITICAL 90000
#define MANUAL 1
#define AUTOMATIC 2

/* What is sensed; each value stands alone, so none of this needs a lock. */
static int temperature[SOCKETS] = { 40000, 40000 };
static int inlet = 25000;
static int speed[FANS];
static int wall;
static atomic64_t energy[SOCKETS];
/* µW, and the time in ns up to which they are counted; of whoever has this lock. */
static DEFINE_SPINLOCK(counting);
static u64 draw[SOCKETS], counted_to[SOCKETS];
static unsigned int clamp_khz[SOCKETS];

/* What is commanded. */
static DEFINE_PER_CPU(unsigned int, khz);
static u64 limit[SOCKETS] = { 105000000, 105000000 };
static u64 window[SOCKETS] = { 1000000, 1000000 };
static u8 pwm[FANS] = { 255, 255, 255, 255 };
static u8 pwm_enable[FANS] = { AUTOMATIC, AUTOMATIC, AUTOMATIC, AUTOMATIC };
/* Manual duties and the board's own must not overtake one another. */
static DEFINE_SPINLOCK(fans);

static unsigned int socket_of(unsigned int cpu)
{
	return topology_physical_package_id(cpu) % SOCKETS;
}

/* Frequencies. */

static struct cpufreq_frequency_table frequencies[] = {
	{ .frequency = 800000 },  { .frequency = 1200000 }, { .frequency = 1600000 },
	{ .frequency = 2000000 }, { .frequency = 2400000 }, { .frequency = 2800000 },
	{ .frequency = CPUFREQ_TABLE_END },
};

static unsigned int frequency_get(unsigned int cpu)
{
	return min_not_zero(per_cpu(khz, cpu), READ_ONCE(clamp_khz[socket_of(cpu)]));
}

static int frequency_set(struct cpufreq_policy *policy, unsigned int index)
{
	per_cpu(khz, policy->cpu) = frequencies[index].frequency;
	return 0;
}

static int frequency_init(struct cpufreq_policy *policy)
{
	if (!per_cpu(khz, policy->cpu))
		per_cpu(khz, policy->cpu) = frequencies[0].frequency;
	policy->freq_table = frequencies;
	policy->cpuinfo.transition_latency = 20 * NSEC_PER_USEC;
	return 0;
}

static struct cpufreq_driver frequency_driver = {
	.name = "ebb_cpufreq",
	.init = frequency_init,
	.verify = cpufreq_generic_frequency_table_verify,
	.target_index = frequency_set,
	.get = frequency_get,
	.attr = cpufreq_generic_attr,
};

/* Idle states: all of them halt; which was chosen is counted by the kernel, as of real ones. */

static __cpuidle int idle_enter(struct cpuidle_device *device, struct cpuidle_driver *driver,
				int index)
{
	if (!need_resched()) {
		raw_safe_halt();
		raw_local_irq_disable();
	}
	return index;
}

#define IDLE_STATE(state, exit, residency)                                        \
	{                                                                         \
		.name = state, .desc = "halt, as " state, .exit_latency = (exit), \
		.target_residency = (residency), .enter = idle_enter,             \
	}

static struct cpuidle_driver idle_driver = {
	.name = "ebb_idle",
	/* Ice Lake-SP's, after POLL, which every driver of x86 has first. */
	.states = {
		[1] = IDLE_STATE("C1", 1, 1),
		[2] = IDLE_STATE("C1E", 4, 4),
		[3] = IDLE_STATE("C6", 170, 600),
	},
	.state_count = 4,
};

/* Energy counters and power limits, one package per socket. */

static struct powercap_control_type *rapl;
static struct powercap_zone package[SOCKETS];

static unsigned int package_of(struct powercap_zone *zone)
{
	return zone - package;
}

/* Counts what a package has drawn, and lets it draw something else from now on. */
static void count_energy(unsigned int number, const u64 *other)
{
	u64 now, microseconds;

	spin_lock(&counting);
	now = ktime_get_ns();
	microseconds = (now - counted_to[number]) / 1000;
	atomic64_add(draw[number] / 1000 * microseconds / 1000, &energy[number]);
	counted_to[number] += microseconds * 1000;
	if (other)
		draw[number] = *other;
	spin_unlock(&counting);
}

static int zone_energy(struct powercap_zone *zone, u64 *uj)
{
	u64 counted;

	count_energy(package_of(zone), NULL);
	counted = atomic64_read(&energy[package_of(zone)]);

	*uj = do_div(counted, RANGE + 1);
	return 0;
}

static int zone_range(struct powercap_zone *zone, u64 *uj)
{
	*uj = RANGE;
	return 0;
}

static int zone_release(struct powercap_zone *zone)
{
	return 0;
}

static int get_limit(struct powercap_zone *zone, int id, u64 *uw)
{
	*uw = READ_ONCE(limit[package_of(zone)]);
	return 0;
}

static int set_limit(struct powercap_zone *zone, int id, u64 uw)
{
	WRITE_ONCE(limit[package_of(zone)], uw);
	return 0;
}

static int get_window(struct powercap_zone *zone, int id, u64 *us)
{
	*us = READ_ONCE(window[package_of(zone)]);
	return 0;
}

static int set_window(struct powercap_zone *zone, int id, u64 us)
{
	WRITE_ONCE(window[package_of(zone)], us);
	return 0;
}

static const char *get_name(struct powercap_zone *zone, int id)
{
	return "long_term";
}

static const struct powercap_zone_ops zone_ops = {
	.get_energy_uj = zone_energy,
	.get_max_energy_range_uj = zone_range,
	.release = zone_release,
};

static const struct powercap_zone_constraint_ops limit_ops = {
	.get_power_limit_uw = get_limit,
	.set_power_limit_uw = set_limit,
	.get_time_window_us = get_window,
	.set_time_window_us = set_window,
	.get_name = get_name,
};

/* Temperatures, fans, the wall meter. */

static int sensed(int value, long *out)
{
	if (value == NONE)
		return -EIO;
	*out = value;
	return 0;
}

static umode_t visible(const void *data, enum hwmon_sensor_types type, u32 attr, int channel)
{
	return type == hwmon_pwm ? 0644 : 0444;
}

static int socket_read(struct device *dev, enum hwmon_sensor_types type, u32 attr, int channel,
		       long *out)
{
	const int *socket = dev_get_drvdata(dev);

	return sensed(attr == hwmon_temp_crit ? CRITICAL : READ_ONCE(*socket), out);
}

static int socket_label(struct device *dev, enum hwmon_sensor_types type, u32 attr, int channel,
			const char **out)
{
	static const char *const labels[SOCKETS] = { "Package id 0", "Package id 1" };
	const int *socket = dev_get_drvdata(dev);

	*out = labels[socket - temperature];
	return 0;
}

static int board_read(struct device *dev, enum hwmon_sensor_types type, u32 attr, int channel,
		      long *out)
{
	if (type == hwmon_temp)
		return sensed(READ_ONCE(inlet), out);
	if (type == hwmon_fan)
		return sensed(READ_ONCE(speed[channel]), out);
	*out = attr == hwmon_pwm_enable ? READ_ONCE(pwm_enable[channel]) : READ_ONCE(pwm[channel]);
	return 0;
}

static int board_label(struct device *dev, enum hwmon_sensor_types type, u32 attr, int channel,
		       const char **out)
{
	*out = "Inlet";
	return 0;
}

/* As many boards do: a duty is taken only where it is not the board's to say. */
static int board_write(struct device *dev, enum hwmon_sensor_types type, u32 attr, int channel,
		       long value)
{
	int error = 0;

	spin_lock(&fans);
	if (attr == hwmon_pwm_enable && value >= 0 && value <= AUTOMATIC)
		WRITE_ONCE(pwm_enable[channel], value);
	else if (attr == hwmon_pwm_input && value >= 0 && value <= 255 &&
		 pwm_enable[channel] == MANUAL)
		WRITE_ONCE(pwm[channel], value);
	else
		error = -EINVAL;
	spin_unlock(&fans);
	return error;
}

static int meter_read(struct device *dev, enum hwmon_sensor_types type, u32 attr, int channel,
		      long *out)
{
	return sensed(READ_ONCE(wall), out);
}

#define FAN HWMON_F_INPUT
#define PWM (HWMON_PWM_INPUT | HWMON_PWM_ENABLE)

static const struct hwmon_channel_info *socket_info[] = {
	HWMON_CHANNEL_INFO(temp, HWMON_T_INPUT | HWMON_T_LABEL | HWMON_T_CRIT), NULL
};
static const struct hwmon_channel_info *board_info[] = {
	HWMON_CHANNEL_INFO(temp, HWMON_T_INPUT | HWMON_T_LABEL),
	HWMON_CHANNEL_INFO(fan, FAN, FAN, FAN, FAN),
	HWMON_CHANNEL_INFO(pwm, PWM, PWM, PWM, PWM), NULL
};
static const struct hwmon_channel_info *meter_info[] = {
	HWMON_CHANNEL_INFO(power, HWMON_P_AVERAGE), NULL
};
static const struct hwmon_ops socket_ops = {
	.is_visible = visible, .read = socket_read, .read_string = socket_label,
};
static const struct hwmon_ops board_ops = {
	.is_visible = visible, .read = board_read, .read_string = board_label,
	.write = board_write,
};
static const struct hwmon_ops meter_ops = { .is_visible = visible, .read = meter_read };
static const struct hwmon_chip_info socket_chip = { .ops = &socket_ops, .info = socket_info };
static const struct hwmon_chip_info board_chip = { .ops = &board_ops, .info = board_info };
static const struct hwmon_chip_info meter_chip = { .ops = &meter_ops, .info = meter_info };

static struct chip {
	const char *device;
	int id;
	const char *name;
	int *data;
	const struct hwmon_chip_info *info;
	struct platform_device *platform;
	struct device *hwmon;
} chips[] = {
	{ "coretemp", 0, "coretemp", &temperature[0], &socket_chip },
	{ "coretemp", 1, "coretemp", &temperature[1], &socket_chip },
	{ "ebb-board", PLATFORM_DEVID_NONE, "ebb_board", NULL, &board_chip },
	{ "ebb-meter", PLATFORM_DEVID_NONE, "power_meter", NULL, &meter_chip },
};

/* /dev/ebb-hw */

static void set_automatic(unsigned int fan, u8 duty)
{
	spin_lock(&fans);
	if (pwm_enable[fan] == AUTOMATIC)
		WRITE_ONCE(pwm[fan], duty);
	spin_unlock(&fans);
}

static DEFINE_MUTEX(coming);

static int add_chip(struct chip *chip)
{
	chip->hwmon = hwmon_device_register_with_info(&chip->platform->dev, chip->name, chip->data,
						      chip->info, NULL);
	return PTR_ERR_OR_ZERO(chip->hwmon);
}

static void remove_chip(struct chip *chip)
{
	if (!IS_ERR_OR_NULL(chip->hwmon))
		hwmon_device_unregister(chip->hwmon);
	chip->hwmon = NULL;
}

/* What is set stays, as in a real chip. */
static int move_chip(struct chip *chip, bool is_here)
{
	int error = 0;

	mutex_lock(&coming);
	if (!is_here)
		remove_chip(chip);
	else if (IS_ERR_OR_NULL(chip->hwmon))
		error = add_chip(chip);
	mutex_unlock(&coming);
	return error;
}

static int take(const char *line)
{
	char key[16], text[24];
	unsigned int number = 0;
	long long value;

	if (sscanf(line, "%15s %23s", key, text) != 2)
		return -EINVAL;
	if (!strcmp(text, "none"))
		value = NONE;
	else if (kstrtoll(text, 10, &value) || value < -100000 || value > INT_MAX)
		return -EINVAL;
	if (!strcmp(key, "inlet"))
		WRITE_ONCE(inlet, value);
	else if (!strcmp(key, "power"))
		WRITE_ONCE(wall, value);
	else if (sscanf(key, "temp%u", &number) == 1 && number < SOCKETS)
		WRITE_ONCE(temperature[number], value);
	else if (sscanf(key, "fan%u", &number) == 1 && number - 1 < FANS)
		WRITE_ONCE(speed[number - 1], value);
	else if (value < 0)
		return -EINVAL;
	else if (sscanf(key, "energy%u", &number) == 1 && number < SOCKETS)
		atomic64_add(value, &energy[number]);
	else if (sscanf(key, "draw%u", &number) == 1 && number < SOCKETS)
		count_energy(number, &(u64){ value });
	else if (sscanf(key, "clamp%u", &number) == 1 && number < SOCKETS)
		WRITE_ONCE(clamp_khz[number], value);
	else if (sscanf(key, "auto%u", &number) == 1 && number - 1 < FANS && value <= 255)
		set_automatic(number - 1, value);
	else if (sscanf(key, "chip%u", &number) == 1 && number < ARRAY_SIZE(chips) && value <= 1)
		return move_chip(&chips[number], value);
	else
		return -EINVAL;
	return 0;
}

static ssize_t device_write(struct file *file, const char __user *from, size_t size, loff_t *at)
{
	char *text, *rest, *line;
	int error = 0;

	if (size > PAGE_SIZE)
		return -E2BIG;
	text = memdup_user_nul(from, size);
	if (IS_ERR(text))
		return PTR_ERR(text);
	rest = text;
	while (!error && (line = strsep(&rest, "\n")))
		if (*line)
			error = take(line);
	kfree(text);
	return error ?: size;
}

static int show(struct seq_file *file, void *data)
{
	unsigned int i;

	for_each_possible_cpu(i)
		seq_printf(file, "frequency%u %u\n", i, frequency_get(i));
	for (i = 0; i < FANS; i++)
		seq_printf(file, "pwm%u %u\npwm%u_enable %u\n", i + 1, READ_ONCE(pwm[i]), i + 1,
			   READ_ONCE(pwm_enable[i]));
	for (i = 0; i < SOCKETS; i++)
		seq_printf(file, "limit%u %llu\n", i, READ_ONCE(limit[i]));
	return 0;
}

static int device_open(struct inode *inode, struct file *file)
{
	file->private_data = NULL; /* misc_open left its own there. */
	return single_open(file, show, NULL);
}

static const struct file_operations device_ops = {
	.owner = THIS_MODULE,
	.open = device_open,
	.read = seq_read,
	.llseek = seq_lseek,
	.write = device_write,
	.release = single_release,
};

static struct miscdevice device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "ebb-hw",
	.fops = &device_ops,
	.mode = 0600,
};

/* Loading and unloading. */

static void remove_chips(void)
{
	int i;

	for (i = ARRAY_SIZE(chips) - 1; i >= 0; i--) {
		remove_chip(&chips[i]);
		if (!IS_ERR_OR_NULL(chips[i].platform))
			platform_device_unregister(chips[i].platform);
	}
}

static int __init add_chips(void)
{
	struct chip *chip;
	int error;

	for (chip = chips; chip < chips + ARRAY_SIZE(chips); chip++) {
		chip->platform = platform_device_register_simple(chip->device, chip->id, NULL, 0);
		if (IS_ERR(chip->platform))
			return PTR_ERR(chip->platform);
		error = add_chip(chip);
		if (error)
			return error;
	}
	return 0;
}

static void remove_packages(int count)
{
	while (count--)
		powercap_unregister_zone(rapl, &package[count]);
	powercap_unregister_control_type(rapl);
}

static int __init add_packages(void)
{
	static const char *const names[SOCKETS] = { "package-0", "package-1" };
	struct powercap_zone *zone;
	int i;

	rapl = powercap_register_control_type(NULL, "intel-rapl", NULL);
	if (IS_ERR(rapl))
		return PTR_ERR(rapl);
	for (i = 0; i < SOCKETS; i++) {
		zone = powercap_register_zone(&package[i], rapl, names[i], NULL, &zone_ops, 1,
					      &limit_ops);
		if (IS_ERR(zone)) {
			remove_packages(i);
			return PTR_ERR(zone);
		}
	}
	return 0;
}

static int __init hardware_init(void)
{
	int error = add_packages();

	if (error)
		return error;
	error = add_chips();
	if (error)
		goto chips;
	error = cpufreq_register_driver(&frequency_driver);
	if (error)
		goto chips;
	cpuidle_poll_state_init(&idle_driver);
	error = cpuidle_register(&idle_driver, NULL);
	if (error)
		goto frequency;
	error = misc_register(&device);
	if (!error)
		return 0;
	cpuidle_unregister(&idle_driver);
frequency:
	cpufreq_unregister_driver(&frequency_driver);
chips:
	remove_chips();
	remove_packages(SOCKETS);
	return error;
}

static void __exit hardware_exit(void)
{
	misc_deregister(&device);
	cpuidle_unregister(&idle_driver);
	cpufreq_unregister_driver(&frequency_driver);
	remove_chips();
	remove_packages(SOCKETS);
}

module_init(hardware_init);
module_exit(hardware_exit);
MODULE_DESCRIPTION("The power side of a server, for tests in a guest");
MODULE_LICENSE("GPL");
