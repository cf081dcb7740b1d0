//! Addresses of the whole configuration: of `[server]`, of the manager and of single sites.

use std::ops::Range;

use toml::Spanned;

use crate::config::error::OperatorError;
use crate::config::manager_table::ManagerConfig;
use crate::config::server_table::{ServerConfig, keyed, refuse_shared_ports, shared_address};
use crate::config::site_listener::SiteListener;
use crate::config::site_table::SiteConfig;
use crate::config::toml_reader::SourceText;
use crate::config::values::{KeyedAddress, ListenAddress, share_ports};

/// Settles the addresses of the whole configuration: refuses an address that has two uses, and finds out which addresses
/// share the port of another.
pub(super) fn settle_addresses(
    source: &SourceText<'_>,
    server: &mut ServerConfig,
    manager: Option<&mut ManagerConfig>,
    sites: &mut [SiteConfig],
) -> Result<(), OperatorError> {
    refuse_two_schemes(source, sites)?;
    let mut own = first_uses(sites);
    let public = keyed("https", &mut server.https).chain(keyed("http", &mut server.http));
    let manager = manager
        .into_iter()
        .flat_map(|manager| keyed("manager", &mut manager.listen));
    let addresses = public.chain(manager).chain(keyed("listen", &mut own));
    refuse_shared_ports(source, addresses.collect())?;
    spread(&own, sites);
    Ok(())
}

/// Settles the addresses after options of the command line changed those of `[server]`. Returns the mistake of an address
/// that has two uses.
pub(super) fn share_with_sites(
    public: Vec<KeyedAddress<'_>>,
    sites: &mut [SiteConfig],
) -> Result<(), String> {
    let mut own = first_uses(sites);
    let mut addresses = public;
    addresses.extend(keyed("listen", &mut own));
    if let Err((earlier, later)) = share_ports(&mut addresses) {
        let [this, other] = [later, earlier].map(|nth| &addresses[nth]);
        return Err(shared_address(
            (this.0, this.1.get_ref()),
            (other.0, other.1.get_ref()),
        ));
    }
    spread(&own, sites);
    Ok(())
}

/// Returns each address of the sites once.
fn first_uses(sites: &[SiteConfig]) -> Vec<Spanned<ListenAddress>> {
    let mut own: Vec<Spanned<ListenAddress>> = Vec::new();
    for listener in sites.iter().flat_map(|site| &site.listen) {
        let address = listener.get_ref().address;
        if !own.iter().any(|it| it.get_ref().address == address.address) {
            own.push(Spanned::new(listener.span(), address));
        }
    }
    own
}

/// Copies what was found out about each address to all sites with the address.
fn spread(own: &[Spanned<ListenAddress>], sites: &mut [SiteConfig]) {
    for listener in sites.iter_mut().flat_map(|site| &mut site.listen) {
        let address = &mut listener.get_mut().address;
        let mut own = own.iter().map(Spanned::get_ref);
        if let Some(settled) = own.find(|it| it.address == address.address) {
            *address = *settled;
        }
    }
}

/// Refuses an address for HTTPS and plain HTTP, and an address that a site names twice.
fn refuse_two_schemes(source: &SourceText<'_>, sites: &[SiteConfig]) -> Result<(), OperatorError> {
    let mut seen: Vec<(SiteListener, Range<usize>, usize)> = Vec::new();
    for (nth, site) in sites.iter().enumerate() {
        for listener in &site.listen {
            let this = *listener.get_ref();
            let is_same = |it: &&(SiteListener, Range<usize>, usize)| {
                it.0.address.address == this.address.address
            };
            match seen.iter().find(is_same) {
                Some((_, _, first)) if *first == nth => {
                    let what = format!("the site has the address `{}` twice", this.address);
                    return Err(source.error(listener.span(), what, "remove one of the two"));
                }
                Some((other, place, _)) if other.secure != this.secure => {
                    let what = format!(
                        "the address `{}` is for HTTPS and for plain HTTP",
                        this.address
                    );
                    let place = source.place(place.start, &listener.span());
                    let help =
                        format!("choose another port; the other use is `{other}` in {place}");
                    return Err(source.error(listener.span(), what, help));
                }
                _ => seen.push((this, listener.span(), nth)),
            }
        }
    }
    Ok(())
}
